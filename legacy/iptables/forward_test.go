package iptables_test

import (
	"net/netip"
	"testing"

	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/legacy/iptables/iptsim"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// A FORWARD policy of DROP stops some connections.
func TestForwardPolicyOfDrop(t *testing.T) {
	pod := modeltest.Pod(model.IPv4, 20)
	for _, tt := range []struct {
		name           string
		o              iptables.Options
		source         netip.Addr
		to             string
		port           uint16
		wantAccept     bool
		wantMasquerade bool
	}{
		{"to an external IP, masqueraded", iptables.Options{}, outside, "192.168.99.11", 80, true, true},
		{"to a cluster IP, from outside, masqueraded", iptables.Options{}, outside, "172.30.0.41", 80, true, true},
		{"to a cluster IP, from a pod: the network plugin's business", iptables.Options{}, pod, "172.30.0.41", 80, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := dualStack().Snapshot().Family(model.IPv4)
			tables := load(t, iptables.Compile(nil, s, tt.o))
			if err := tables.Restore("*filter\n:FORWARD DROP [0:0]\nCOMMIT\n"); err != nil {
				t.Fatal(err)
			}
			got, err := iptsim.New(tables, s.NodeAddrs...).Run(connection(tt.source, netip.MustParseAddr(tt.to), tt.port))
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "accepted", tt.wantAccept, got.Verdict == model.Forwarded)
			for to, a := range got.To {
				if a.Masquerade != tt.wantMasquerade {
					t.Errorf("%v: masqueraded is %v, want %v", to, a.Masquerade, tt.wantMasquerade)
				}
			}
		})
	}
}

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
