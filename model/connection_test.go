package model_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// Decisions about random clusters must be consistent. Random connections must meet every
// reason, or comparing backends by them would show little.
func TestDecisionsAboutRandomConnections(t *testing.T) {
	why, snat := map[string]int{}, map[string]int{}
	for seed := range uint64(100) {
		r := modeltest.NewRandom(modeltest.Seed(seed))
		b := model.NewBuilder(configs[seed%uint64(len(configs))])
		for range 5 {
			r.Steps(b, 40)
			for range 10 {
				s := b.Snapshot()
				c := modeltest.Connection(r, s)
				d := model.Decide(s, c)
				checkDecision(t, s, d)
				if t.Failed() {
					t.Fatalf("seed %d: %+v in\n%v", seed, d, textOf(s))
				}
				why[reasons[d.Why]]++
				for _, target := range d.Targets {
					snat[snatReasons[target.SNAT]]++
				}
			}
		}
	}
	// The forwarder on loopback is for tests of its own.
	all := slices.Sorted(maps.Values(reasons))
	all = slices.DeleteFunc(all, func(s string) bool { return s == reasons[model.LoopbackForwarder] })
	testaid.Equal(t, "reasons", all, slices.Sorted(maps.Keys(why)))
	all = slices.Sorted(maps.Values(snatReasons))
	all = slices.DeleteFunc(all, func(s string) bool { return s == snatReasons[model.ByForwarder] })
	testaid.Equal(t, "reasons for source NAT", all, slices.Sorted(maps.Keys(snat)))
	for name, n := range why {
		if n < 20 {
			t.Errorf("only %d of %v connections: %s", n, why, name)
		}
	}
}

// checkDecision checks the invariants of a decision.
func checkDecision(t *testing.T, s *model.Snapshot, d model.Decision) {
	t.Helper()
	fs := s.Family(model.FamilyOf(d.Dest.Addr()))
	testaid.Equal(t, "is there a frontend exactly with a service port?", d.Port != nil, d.Frontend != nil)
	testaid.Equal(t, "are there targets exactly if it is forwarded?", d.Verdict == model.Forwarded, len(d.Targets) > 0)
	testaid.Equal(t, "is the client, who comes in by an interface, not on the node?", d.Node, d.Interface == "")
	if d.Frontend != nil && d.Frontend.Kind == model.NodePort {
		testaid.Equal(t, "is the destination one of the node's?", true, slices.Contains(fs.NodePortAddrs, d.Dest.Addr()))
	}
	if d.Verdict != model.Forwarded {
		return
	}
	testaid.Equal(t, "targets", slices.Collect(d.Port.In(d.TrafficPolicy)), endpoints(d.Targets), compareEndpoints)
	testaid.Equal(t, "is the list in use?", true, d.Frontend.Uses(d.TrafficPolicy))
	// Only clients on the node or in its pods get more endpoints than the policy selects.
	if d.Frontend.TrafficPolicy == model.Local && d.TrafficPolicy == model.Cluster {
		testaid.Equal(t, "is the client inside?", true, d.Node || d.FromPod)
	}
	for _, target := range d.Targets {
		if d.Frontend.SourceNAT == model.MasqueradeAlways && !target.SNAT.Masquerade() {
			testaid.Equal(t, fmt.Sprintf("is %v on the node?", target), true, slices.Contains(fs.NodeAddrs, target.Addr.Addr()) && !d.Node)
		}
		if target.Hairpin && target.Addr.Addr() == d.Source && target.Addr != d.Dest && !slices.Contains(fs.NodeAddrs, d.Source) {
			testaid.Equal(t, "hairpin", model.Hairpin, target.SNAT)
		}
	}
}

func endpoints(targets []model.Target) []model.Endpoint {
	var list []model.Endpoint
	for _, t := range targets {
		list = append(list, t.Endpoint)
	}
	return list
}
