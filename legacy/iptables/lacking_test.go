package iptables_test

import (
	"strings"
	"testing"

	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/legacy/iptables/iptsim"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// Without the matches recent and sctp, rules have neither, and the service ports of SCTP are named.
func TestAKernelThatLacksMatches(t *testing.T) {
	s := modeltest.Snapshot(modeltest.Config(), modeltest.OurNode(),
		modeltest.NewService("ns1/web").On("172.30.0.41").TCP("http", 80).Port(model.Port{Name: "s", Protocol: "SCTP", Port: 99}).Sticky(60),
		modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).Port("s", "SCTP", 99).Ready("10.0.0.4", "10.0.0.5"),
	).Family(model.IPv4)
	for _, lacks := range []bool{false, true} {
		r := iptables.Compile(nil, s, iptables.Options{NoAffinity: lacks, NoSCTP: lacks})
		for _, match := range []string{"-m recent", "-p sctp"} {
			if strings.Contains(r.String(), match) == lacks {
				t.Errorf("lacking: %v; %s is in the rules: %v", lacks, match, !lacks)
			}
		}
		if named := r.Lacking()[modeltest.PortName("ns1/web", "s", model.SCTP)]; named != lacks {
			t.Errorf("lacking: %v; the port of SCTP is named: %v", lacks, named)
		}
	}
}

// Where an endpoint is the very address and port that its clients ask for, nothing is translated, and nothing refused.
func TestAnEndpointAtItsServicesAddress(t *testing.T) {
	for port, want := range map[int32]model.Verdict{80: model.Forwarded, 8080: model.Rejected} {
		s := modeltest.Snapshot(modeltest.Config(), modeltest.OurNode(),
			modeltest.NewService("ns1/web").On("172.30.0.41").TCP("http", 80),
			modeltest.NewSlice("ns1/web-1", "web").TCP("http", port).Ready("172.30.0.41"),
		).Family(model.IPv4)
		sim := iptsim.New(load(t, iptables.Compile(nil, s, iptables.Options{})), s.NodeAddrs...)
		for sp := range s.ServicePorts() {
			c := connection(modeltest.Pod(model.IPv4, 20), sp.Frontends[0].VIP.Addr, 80)
			_, got, err := sim.Hook("filter", "FORWARD", iptsim.Packet{Connection: c})
			if err != nil || got.Verdict != want {
				t.Errorf("endpoint port %d: %v, %v, want %v", port, got.Verdict, err, want)
			}
		}
	}
}
