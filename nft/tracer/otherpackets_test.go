package tracer

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/nettest"
)

// Packets of other connections match no rule of a trace, in both directions. Another trace shows it.
func TestOtherPacketsMatchNoRule(t *testing.T) {
	nettest.Enter(t)
	nettest.Run(t, "table inet others { chain input { type filter hook input priority 0; ct state established accept; }; }\n", "nft", "-f", "-")
	up(t)
	server, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	start := func(dest netip.AddrPort) *Tracer {
		tr, err := Start(Filter{Dest: dest, Protocol: model.UDP, Lifetime: time.Hour})
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
	seen := 0
	for {
		events, err := witness.Read(t.Context(), time.Now().Add(100*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		if len(events) == 0 {
			break
		}
		for _, e := range events {
			if e.Place.Table != idle.Table() {
				continue
			}
			if seen++; e.Kind == Rule && e.Rule != 0 {
				t.Errorf("the datagram or its answer matches a rule of chain %s", e.Place.Chain)
			}
		}
	}
	if seen == 0 {
		t.Error("the trace's chains were not met: nothing was tested")
	}
}

// up sets lo up in this thread's namespace.
func up(tb testing.TB) {
	tb.Helper()
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		tb.Fatal(err)
	}
}
