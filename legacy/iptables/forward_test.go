package iptables_test

import (
	"net/netip"
	"testing"

	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/legacy/iptables/iptsim"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// A packet of a connection that began before there were rules has passed the table nat without them. It waits
// for the kernel to forget the connection: were it refused, the client would give up.
func TestAConnectionFromBeforeTheRulesIsNotRefused(t *testing.T) {
	s := dualStack().Snapshot().Family(model.IPv4)
	sim := iptsim.New(load(t, iptables.Compile(nil, s, iptables.Options{})), s.NodeAddrs...)
	for confirmed, want := range map[bool]model.Verdict{false: model.Rejected, true: model.Dropped} {
		p := iptsim.Packet{
			Connection: connection(modeltest.Pod(model.IPv4, 20), netip.MustParseAddr("172.30.0.41"), 80),
			Confirmed:  confirmed,
		}
		_, got, err := sim.Hook("filter", "FORWARD", p)
		if err != nil {
			t.Fatal(err)
		}
		if got.Verdict != want {
			t.Errorf("a packet that nat did not translate, of a connection that was seen before: %v: %v, want %v", confirmed, got.Verdict, want)
		}
	}
}
