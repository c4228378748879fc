package iptables_test

import (
	"testing"

	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/legacy/iptables/iptsim"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// The address plan of these tests is modeltest's: pods 10.0.0.0/8, ClusterIPs
// 172.30.0.0/16, nodes 192.168.0.0/24 (ours .2), load-balancer addresses
// 192.168.98.0/24, ExternalIPs 192.168.99.0/24, outside 203.0.113.0/24, and IPv6 twins.

var configs = modeltest.Configs

// options are the options of random tests, in turn.
var options = []iptables.Options{
	{},
	{MasqueradeMark: 1, RandomFully: true},
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
