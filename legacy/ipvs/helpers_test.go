package ipvs_test

import (
	"maps"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/legacy/ipvs/ipvssim"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// The address plan of these tests is modeltest's: pods 10.0.0.0/8, ClusterIPs
// 172.30.0.0/16, nodes 192.168.0.0/24 (ours .2), load-balancer addresses
// 192.168.98.0/24, ExternalIPs 192.168.99.0/24, outside 203.0.113.0/24, and IPv6 twins.

var configs = modeltest.Configs

type states [len(model.Families)]*ipvs.State

func compile(before states, s *model.Snapshot, o ipvs.Options) states {
	var all states
	for _, f := range model.Families {
		all[f] = ipvs.Compile(before[f], s.Family(f), o)
	}
	return all
}

// apply carries out a plan, as strictly as a kernel.
func apply(t *testing.T, c *ipvs.Content, ops []ipvs.Op) {
	t.Helper()
	for _, op := range ops {
		if err := ipvssim.Apply(c, op); err != nil {
			t.Fatal(err)
		}
	}
}

func simulate(t *testing.T, c *ipvs.Content, s *model.FamilySnapshot) *ipvssim.Simulator {
	t.Helper()
	sim, err := ipvssim.New(c, s.NodeAddrs...)
	if err != nil {
		t.Fatalf("the content is not sound: %v", err)
	}
	return sim
}

func run(t *testing.T, sim *ipvssim.Simulator, c model.Connection) ipvssim.Outcome {
	t.Helper()
	o, err := sim.Run(c)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// settled returns the part of a Content that does not depend on history: without draining real servers.
func settled(c *ipvs.Content) *ipvs.Content {
	c = ipvssim.Clone(c)
	for _, s := range c.Servers {
		maps.DeleteFunc(s.Real, func(_ netip.AddrPort, weight int) bool { return weight == 0 })
	}
	return c
}

var compareContents = []cmp.Option{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }),
	cmp.Comparer(func(a, b *ipvs.Rules) bool {
		return a == b || a != nil && b != nil && a.String() == b.String()
	}),
	cmp.Comparer(func(a, b ipvs.Entry) bool { return a == b }),
	cmp.Comparer(func(a, b ipvs.Key) bool { return a == b }),
}
