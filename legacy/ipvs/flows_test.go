package ipvs_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/vmapd/vmapd/legacy/iptables/iptsim"
	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/legacy/ipvs/ipvssim"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// Packets that random connections do not have: these are compared with the model's decisions.
func TestFlows(t *testing.T) {
	config := modeltest.Config()
	config.LocalPods.ClusterCIDRs = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	config.DropInvalid = true
	s := modeltest.Snapshot(config,
		modeltest.OurNode(), modeltest.NewServiceCIDR("kubernetes", "172.30.0.0/16"),
		modeltest.NewService("ns1/elsewhere").On("172.30.0.41").LoadBalancer("192.168.98.11").TCP("", 80).NodePort(30001).Policies("", "Local"),
		modeltest.NewSlice("ns1/elsewhere-1", "elsewhere").TCP("", 8080).Ready("10.0.0.3"),
		modeltest.NewService("ns1/here").On("172.30.0.42").LoadBalancer("192.168.98.12").TCP("", 80).Policies("", "Local"),
		modeltest.NewSlice("ns1/here-1", "here").TCP("", 8080).Local("10.0.0.2").Ready("10.0.0.3"),
	).Family(model.IPv4)
	sim := simulate(t, ipvs.Compile(nil, s, ipvs.Options{}).Content(), s)
	const outside, pod = "203.0.113.7", "10.0.0.2"
	packet := func(p iptsim.Packet) string {
		o, err := sim.RunPacket(p)
		if err != nil {
			t.Fatal(err)
		}
		return inWords(o)
	}
	t.Run("what connection tracking can make nothing of", func(t *testing.T) {
		p := iptsim.Packet{Connection: tcp("10.0.0.3", "203.0.113.7:40000"), SourcePort: 8080, Invalid: true}
		equal(t, "a reply", "drop", packet(p))
		p.SourcePort = 8081
		equal(t, "what is no endpoint", "drop", packet(p))
		p.Connection = tcp("10.0.0.3", "192.168.0.2:40000")
		equal(t, "to the node itself", "192.168.0.2:40000", packet(p))
	})
	t.Run("marks of others are left as they are", func(t *testing.T) {
		p := iptsim.Packet{Connection: tcp(pod, "192.168.98.11:80"), SourcePort: modeltest.ClientPort, Mark: 0xffff3fff}
		equal(t, "a pod's connection", "10.0.0.3:8080", packet(p))
		p = iptsim.Packet{Connection: tcp(outside, "172.30.0.42:80"), SourcePort: modeltest.ClientPort, Mark: 0xffff3fff}
		equal(t, "a masqueraded connection", "10.0.0.2:8080 masqueraded 10.0.0.3:8080 masqueraded", packet(p))
	})
}

func tcp(from, to string) model.Connection {
	return model.Connection{Source: netip.MustParseAddr(from), Dest: netip.MustParseAddrPort(to), Protocol: model.TCP}
}

func inWords(o ipvssim.Outcome) string {
	if o.Verdict == model.Dropped {
		return "drop"
	}
	text := ""
	for _, pod := range []string{"10.0.0.2:8080", "10.0.0.3:8080"} {
		a, ok := o.To[netip.MustParseAddrPort(pod)]
		if ok {
			text += " " + pod
		}
		if a.Masquerade {
			text += " masqueraded"
		}
	}
	if text == "" {
		for to := range o.To {
			text += fmt.Sprintf(" %v", to)
		}
	}
	return text[1:]
}
