package others

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/model"
)

// Packets of other connections match one rule of a trace at the hook where their way begins, and meet no
// other, in both directions. Another trace shows it.
func TestOtherPacketsMeetOneRule(t *testing.T) {
	alone(t)
	load(t, "table inet others { chain input { type filter hook input priority 0; ct state established accept; }; }\n")
	up(t)
	server, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	start := func(dest netip.AddrPort) *Tracer {
		tr, err := StartTrace(Filter{Dest: dest, Protocol: model.UDP, Count: 1, Lifetime: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tr.Close() })
		return tr
	}
	idle := start(netip.MustParseAddrPort("172.30.0.1:80"))
	// The kernel runs the later one of two chains with the same priority first.
	witness := start(netip.MustParseAddrPort(server.LocalAddr().String()))

	client, err := net.Dial("udp4", server.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	buffer := make([]byte, 1)
	if _, err := client.Write(buffer); err != nil {
		t.Fatal(err)
	}
	_, from, err := server.ReadFrom(buffer)
	if err == nil {
		_, err = server.WriteTo(buffer, from)
	}
	if err == nil {
		_, err = client.Read(buffer)
	}
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for {
		events, err := witness.Read(t.Context(), time.Now().Add(100*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		if len(events) == 0 {
			break
		}
		for _, e := range events {
			if e.Place.Table == idle.Table() && e.Kind == Rule && e.Rule != 0 {
				got[e.Place.Chain]++
			}
		}
	}
	// The datagram and its answer each pass both hooks.
	if want := map[string]int{"output-tracked": 2, "prerouting-tracked": 2}; !cmp.Equal(want, got) {
		t.Errorf("rules that matched (-want +got):\n%s", cmp.Diff(want, got))
	}
}
