package trace

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/explain"
)

// A connection to an endpoint that outlier detection has found silent fails for that reason, in most cases.
func TestASilentEndpointIsSaid(t *testing.T) {
	in := input(whole(), nil)
	for _, at := range []string{endpoint.String(), "10.0.0.4:8080"} {
		in.Expected = &explain.Explanation{Silent: map[string]string{at: "3 packets of 1 client unanswered, probe timed out"}}
		const want = "note: Outlier detection has found 10.0.0.3:8080 silent: 3 packets of 1 client"
		if got := text(t, NewStory(in)); strings.Contains(got, want) != (at == endpoint.String()) {
			t.Errorf("%s is silent:\n%s", at, got)
		}
	}
}

// A connection that no hook has seen may have left its client all the same.
func TestWhatNoHookSaw(t *testing.T) {
	w := Watch{}
	w.Filter.Dest = netip.MustParseAddrPort("10.96.0.50:80")
	for want, err := range map[string]error{
		"no nftables hook of this node saw the connection (no answer in time): a chain of the family netdev, tc, ": context.DeadlineExceeded,
		"no nftables hook of this node saw the connection (refused): ":                                             unix.ECONNREFUSED,
		"no nftables hook of this node saw the connection (it succeeded): ":                                        nil,
		"no packet was sent: this node has no route to 10.96.0.50: it needs one that covers cluster IPs; ":         &net.OpError{Op: "dial", Err: unix.ENETUNREACH},
		"no packet was sent: operation not permitted":                                                              unix.EPERM,
	} {
		if got := w.unseen(err).Error(); !strings.HasPrefix(got, want) {
			t.Errorf("want %s, got %s", want, got)
		}
	}
}
