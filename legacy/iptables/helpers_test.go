package iptables_test

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/legacy/iptables/iptsim"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// The address plan of these tests is modeltest's: pods 10.0.0.0/8, ClusterIPs
// 172.30.0.0/16, nodes 192.168.0.0/24 (ours .2), load-balancer addresses
// 192.168.98.0/24, ExternalIPs 192.168.99.0/24, outside 203.0.113.0/24, and IPv6 twins.

func equal[T any](t *testing.T, what string, want, got T, options ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, options...); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// configs are those that random tests run with, in turn.
var configs = []model.Config{
	modeltest.Config(),
	{NodeName: "node-1", NodePortAddresses: model.NodePortAddresses{All: true}, MasqueradeAll: true},
	{
		NodeName:          "node-1",
		NodePortAddresses: model.NodePortAddresses{Primary: true},
		LocalPods:         model.LocalPods{ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00:10::/64")}},
	},
	{
		NodeName: "node-1", NodePortAddresses: model.NodePortAddresses{Primary: true, All: true},
		LocalPods: model.LocalPods{Mode: model.ByNodeCIDR}, Algorithm: model.RoundRobin, DropInvalid: true,
	},
	{
		NodeName: "node-1", NodePortAddresses: model.NodePortAddresses{Primary: true},
		LocalPods: model.LocalPods{Mode: model.ByBridge, Interface: "cbr0"}, Algorithm: model.SourceHash,
	},
	{
		NodeName: "node-1", NodePortAddresses: model.NodePortAddresses{Primary: true},
		LocalPods: model.LocalPods{Mode: model.ByInterfacePrefix, Interface: "cali"}, DropInvalid: true,
	},
	{
		NodeName: "node-1", NodePortAddresses: model.NodePortAddresses{Primary: true},
		LocalPods: model.LocalPods{ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}},
	},
}

// options are those that random tests run with, in turn.
var options = []iptables.Options{
	{Comments: true},
	{MasqueradeMark: 1, RandomFully: true, AcceptForwarded: true},
}

type rulesets [len(model.Families)]*iptables.Ruleset

func compileAll(before rulesets, s *model.Snapshot, o iptables.Options) rulesets {
	var all rulesets
	for _, f := range model.Families {
		all[f] = iptables.Compile(before[f], s.Family(f), o)
	}
	return all
}

// load reads the whole text of a ruleset.
func load(t testing.TB, r *iptables.Ruleset) *iptsim.Tables {
	t.Helper()
	tables := iptsim.NewTables(r.Family)
	if err := tables.Restore(r.String()); err != nil {
		t.Fatalf("the whole text: %v", err)
	}
	return tables
}

func simulate(t testing.TB, tables *iptsim.Tables, s *model.FamilySnapshot) *iptsim.Simulator {
	t.Helper()
	sim, err := iptsim.New(tables, s.NodeAddrs...)
	if err != nil {
		t.Fatal(err)
	}
	return sim
}

func addRandom(f *testing.F) {
	f.Helper()
	for seed := range uint64(10) {
		data := make([]byte, 600)
		r := rand.New(modeltest.Seed(seed))
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		f.Add(data)
	}
}
