package ipvs_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/legacy/ipvs/ipvssim"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// IPVS and its rules implement the decisions of the model, except for ipvs.Differences.

const (
	// lost is the difference by which packets of a connection do not arrive: there is no outcome.
	lost = 3
	// onlyHere is the difference by which a connection gets an endpoint of another list.
	onlyHere = 4
)

// instead changes the outcome for a decision that a difference concerns, by its index in the
// list.
var instead = map[int]func(d model.Decision, want *modeltest.Outcome){
	0: func(_ model.Decision, want *modeltest.Outcome) { want.TCPReset = false },
	1: func(d model.Decision, want *modeltest.Outcome) {
		*want = modeltest.Outcome{Verdict: model.Rejected, TCPReset: d.Protocol == model.TCP}
	},
	2: func(d model.Decision, want *modeltest.Outcome) {
		for _, target := range d.Targets {
			if target.SNAT != model.OnNode {
				a := want.To[target.Addr]
				a.Masquerade = true
				want.To[target.Addr] = a
			}
		}
	},
}

// visit is a client of a virtual server.
type visit struct {
	dest   model.VIP
	client netip.Addr
}

// decide is model.Decide with IPVS' list of endpoints, for a client that may have come before.
func decide(s *model.Snapshot, c model.Connection, before map[visit]netip.AddrPort, n *tally) model.Decision {
	d := model.Decide(s, c)
	in := s.Family(model.FamilyOf(c.Dest.Addr()))
	if ipvs.Differences[onlyHere].Concerns(in, d) {
		n.differed[onlyHere]++
		d.TrafficPolicy, d.Targets = model.Local, nil
		for e := range d.Port.In(model.Local) {
			snat := model.KeepSource
			switch toNode := slices.Contains(in.NodeAddrs, e.Addr.Addr()); {
			case toNode && !d.Node:
				snat = model.OnNode
			case d.Node:
				snat = model.FromNode
			case e.Addr.Addr() == d.Source && e.Addr != d.Dest:
				snat = model.Hairpin
			}
			d.Targets = append(d.Targets, model.Target{Endpoint: e, SNAT: snat})
		}
	}
	dest := model.VIP{Addr: c.Dest.Addr(), Protocol: c.Protocol, Port: c.Dest.Port()}
	got, ok := before[visit{dest, c.Source}]
	if i := slices.IndexFunc(d.Targets, func(t model.Target) bool { return t.Addr == got }); ok && d.Port.Affinity > 0 && i >= 0 {
		d.Targets = d.Targets[i : i+1]
	}
	return d
}

// tally counts how often each difference was met, and the connections forwarded inside.
type tally struct {
	differed map[int]int
	reasons  map[model.Reason]int
}

// agree makes random connections, one after the other, and compares decisions with simulated
// outcomes. Each connection gets one of its targets, and IPVS and the model remember it: by the
// address, protocol and port of the destination, as each frontend has session affinity of its own.
func agree(t *testing.T, r *modeltest.Random, s *model.Snapshot, contents [len(model.Families)]*ipvs.Content, connections int, n *tally) {
	t.Helper()
	var sims [len(model.Families)]*ipvssim.Simulator
	for _, f := range model.Families {
		sims[f] = simulate(t, contents[f], s.Family(f))
	}
	remembered := map[visit]netip.AddrPort{}
	for _, c := range modeltest.Sequence(r, s, connections) {
		if c.Dest.Addr().IsLoopback() {
			continue // meets no rule
		}
		f := model.FamilyOf(c.Dest.Addr())
		d := decide(s, c, remembered, n)
		n.reasons[d.Why]++
		if ipvs.Differences[lost].Concerns(s.Family(f), d) {
			n.differed[lost]++
			continue
		}
		want := modeltest.Expected(d)
		for i, difference := range ipvs.Differences {
			if i == lost || i == onlyHere || !difference.Concerns(s.Family(f), d) {
				continue
			}
			before := modeltest.Expected(d)
			instead[i](d, &want)
			if before.Disagrees(want) != "" {
				n.differed[i]++
			}
		}
		got := run(t, sims[f], c)
		if how := want.Disagrees(got.Outcome); how != "" {
			t.Fatalf("%+v\ndecided: %v, reason %d: %s\nby %v, rules met: %q", c, d.Verdict, d.Why, how, got.Server, got.Trace)
		}
		if d.Verdict == model.Forwarded && len(d.Targets) > 0 {
			to := d.Targets[r.IntN(len(d.Targets))].Addr
			remembered[visit{model.VIP{Addr: c.Dest.Addr(), Protocol: c.Protocol, Port: c.Dest.Port()}, c.Source}] = to
			sims[f].Remember(got.Server, c.Source, to)
		}
	}
}

func TestIPVSDoesWhatIsDecided(t *testing.T) {
	const seeds, steps, connections = 60, 20, 40
	total := &tally{map[int]int{}, map[model.Reason]int{}}
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			r := modeltest.NewRandom(modeltest.Seed(seed))
			b := model.NewBuilder(configs[seed%uint64(len(configs))])
			have := compile(states{}, b.Snapshot(), ipvs.Options{})
			for range steps {
				r.Steps(b, 1+r.IntN(6))
				s := b.Snapshot()
				have = compile(have, s, ipvs.Options{})
				var contents [len(model.Families)]*ipvs.Content
				for _, f := range model.Families {
					contents[f] = have[f].Content()
				}
				agree(t, r, s, contents, connections, total)
			}
		})
	}
	for i, d := range ipvs.Differences {
		if total.differed[i] == 0 {
			t.Errorf("nothing was done otherwise because of: %s", d.What)
		}
	}
	for reason := model.NoService; reason <= model.UnallocatedAddr; reason++ {
		if total.reasons[reason] == 0 {
			t.Errorf("no connection was decided for reason %d", reason)
		}
	}
	t.Logf("differed: %v, decided by reason: %v", total.differed, total.reasons)
}
