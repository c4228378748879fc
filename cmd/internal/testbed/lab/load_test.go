package lab

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestLoadLosesNothing(t *testing.T) {
	w := newWorld(t, 1)
	addr := netip.AddrPortFrom(w.Pods()[0].IP4, port)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	r := Load{
		Rate: 200,
		Ask:  func(ctx context.Context) (Answer, error) { return w.Client.Ask(ctx, "tcp", addr) },
	}.Run(ctx)
	t.Log(r.String())
	if r.Lost() != 0 || r.Sent != r.Answered["pod-1"] {
		t.Errorf("lost some: %s", r.String())
	}
	// A machine that is busy makes fewer than are due, and ends later.
	if due := int(200*r.Elapsed.Seconds()) + 1; r.Sent < 20 || r.Sent > due {
		t.Errorf("want at most %d connections, got %d", due, r.Sent)
	}
	if r.Max < r.P99 || r.P99 == 0 {
		t.Errorf("latencies make no sense: %s", r.String())
	}
}

func TestLoadCountsFailuresByKind(t *testing.T) {
	w := newWorld(t, 1)
	refused := netip.AddrPortFrom(w.Pods()[0].IP4, 9)
	n := 0
	ctx, cancel := context.WithCancel(t.Context())
	r := Load{
		Rate:    1000,
		Timeout: 50 * time.Millisecond,
		Limit:   1, // so that n needs no lock
		Ask: func(ctx context.Context) (Answer, error) {
			switch n++; n {
			case 1, 2:
				return w.Client.Ask(ctx, "tcp", refused)
			case 3:
				return w.Client.Ask(ctx, "udp", netip.MustParseAddrPort("172.30.0.10:53"))
			case 4:
				cancel() // this one counts no less for it
			}
			return Answer{Pod: "pod-1"}, nil
		},
	}.Run(ctx)
	if r.Failed[Refused] != 2 || r.Failed[Timeout] != 1 || r.Answered["pod-1"] != r.Sent-3 || r.Failed[Canceled] != 0 {
		t.Errorf("want 2 refused, 1 timeout, got %s", r.String())
	}
	if err := r.First[Refused]; err == nil || !strings.Contains(err.Error(), refused.String()) {
		t.Errorf("first refused: want one to %s, got %v", refused, err)
	}
	if want := "1 timeout, the first: udp4 from client to 172.30.0.10:53: "; !strings.Contains(r.String(), want) {
		t.Errorf("want %q in %q", want, r.String())
	}
}
