package compile_test

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/compile"
	"github.com/vmapd/vmapd/nft/nftsim"
)

// The rules implement the decisions of modeltest.Memory.Decide.

type rulesets [len(model.Families)]*compile.Ruleset

// agree makes random connections, one after the other, and compares decisions with simulated
// outcomes. Each connection gets one of its targets, and the rules and the model remember it.
func agree(t *testing.T, r *modeltest.Random, s *model.Snapshot, rulesets rulesets, connections int, n *tally) {
	t.Helper()
	var sims [len(model.Families)]*nftsim.Simulator
	for _, f := range model.Families {
		checkSlots(t, rulesets[f])
		sim, err := nftsim.New(rulesets[f].Table(), s.Family(f).NodeAddrs...)
		if err != nil {
			t.Fatalf("the ruleset is not sound: %v", err)
		}
		sims[f] = sim
	}
	var memory modeltest.Memory
	for _, c := range modeltest.Sequence(r, s, connections) {
		if c.Dest.Addr().IsLoopback() {
			continue // meets no rule
		}
		f := model.FamilyOf(c.Dest.Addr())
		d := memory.Decide(s, c)
		got, err := sims[f].Run(c)
		if err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		if how := modeltest.Expected(d).Disagrees(got.Outcome); how != "" {
			t.Fatalf("%+v\ndecided: %v, reason %d: %s\nrules met: %q", c, d.Verdict, d.Why, how, got.Trace)
		}
		checkHashed(t, sims[f], d)
		checkRemembered(t, d, got)
		checkCounted(t, d, got, rulesets[f].Options.Counters)
		if d.Verdict != model.Forwarded {
			continue
		}
		to := d.Targets[r.IntN(len(d.Targets))]
		n.count(d, to)
		memory = memory.After(d, to)
		for _, name := range got.To[to.Addr].Remembered {
			if err := sims[f].Remember(name, c.Source, to.Addr); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// tally counts connections of rare kinds, without which agreement shows little.
type tally struct {
	cameBack, ownDestination, nodeAddr atomic.Int64
}

func (n *tally) count(d model.Decision, to model.Target) {
	if len(d.Targets) < d.Port.Count(d.TrafficPolicy) {
		n.cameBack.Add(1)
	}
	if to.Addr == d.Dest {
		n.ownDestination.Add(1)
	}
	if a := d.Dest.Addr().String(); d.Frontend.Kind != model.NodePort && (a == modeltest.NodeIP4 || a == modeltest.NodeIP6) {
		n.nodeAddr.Add(1)
	}
}

// checkCounted checks that a connection to a Service is counted once, unless source ranges exclude it, and that no other
// connection is counted.
func checkCounted(t *testing.T, d model.Decision, got nftsim.Outcome, counters bool) {
	t.Helper()
	var want []string
	switch {
	case !counters || d.Port == nil || d.Why == model.UnusedPort || d.Why == model.SourceNotAllowed:
	default:
		of := nft.FrontendsOf(d.Frontend.Kind)
		want = []string{of.Counters + " " + d.Port.Name.String()}
	}
	testaid.Equal(t, fmt.Sprintf("who counts %+v: %v for reason %d", d.Connection, d.Verdict, d.Why), want, got.Counted)
	if t.Failed() {
		t.FailNow()
	}
}

// checkHashed checks that a lookup table sends a client to the endpoint that the model says.
func checkHashed(t *testing.T, sim *nftsim.Simulator, d model.Decision) {
	t.Helper()
	if len(d.Targets) < 2 || !d.Port.Algorithm.HasTable() {
		return
	}
	sim.Hash(true)
	defer sim.Hash(false)
	for port := range uint16(4) {
		d.SourcePort = modeltest.ClientPort + port
		got, err := sim.Run(d.Connection)
		if err != nil {
			t.Fatal(err)
		}
		if how := expectedHashed(d).Disagrees(got.Outcome); how != "" {
			t.Fatalf("%+v by %v: %s\nrules met: %q", d.Connection, d.Port.Algorithm, how, got.Trace)
		}
	}
}

// checkRemembered checks that a client's endpoint is recorded with affinity, and only then.
func checkRemembered(t *testing.T, d model.Decision, got nftsim.Outcome) {
	t.Helper()
	if d.Verdict != model.Forwarded {
		return
	}
	for _, target := range d.Targets {
		n := 0
		for _, l := range model.TrafficPolicies {
			// The other list has a map only if some connection may be sent to it.
			used := slices.ContainsFunc(d.Port.Frontends, func(fe model.Frontend) bool { return fe.Uses(l) })
			if d.Port.Affinity > 0 && target.In(l) && used {
				n++
			}
		}
		if maps := got.To[target.Addr].Remembered; len(maps) != n {
			t.Fatalf("%+v: %v is remembered in %q, want %d maps", d.Connection, target.Addr, maps, n)
		}
	}
}

func TestTheRulesDoWhatIsDecided(t *testing.T) {
	const seeds, steps, connections = 60, 20, 40
	var n tally
	t.Cleanup(func() {
		for what, count := range map[string]int64{
			"of a client that came back": n.cameBack.Load(), "to an endpoint that was its destination": n.ownDestination.Load(),
			"to an external address of the node": n.nodeAddr.Load(),
		} {
			if count < 20 {
				t.Errorf("only %d connections %s", count, what)
			}
		}
	})
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			r := modeltest.NewRandom(modeltest.Seed(seed))
			b := model.NewBuilder(modeltest.Configs[seed%uint64(len(modeltest.Configs))])
			o := compile.Options{Counters: seed%2 > 0, FastPath: seed%3 > 0}
			if seed%4 > 0 {
				o.Timeouts = nft.RetryTimeouts(nil)
			}
			var have rulesets
			for range steps {
				r.Steps(b, 1+r.IntN(6))
				s := b.Snapshot()
				for _, f := range model.Families {
					have[f] = o.Compile(have[f], s.Family(f))
				}
				agree(t, r, s, have, connections, &n)
			}
		})
	}
}

// expectedHashed is modeltest.Expected for rules that hash, as those of nftables do: one client always gets the
// same target of a lookup table.
func expectedHashed(d model.Decision) modeltest.Outcome {
	o := modeltest.Expected(d)
	if len(d.Targets) < 2 || !d.Port.Algorithm.HasTable() {
		return o
	}
	d.SourcePort = cmp.Or(d.SourcePort, modeltest.ClientPort)
	if t, ok := d.Chosen(); ok {
		o.To, o.Slack = map[netip.AddrPort]modeltest.Arrival{t.Addr: {Share: 1, Masquerade: t.SNAT.Masquerade()}}, 0
	}
	return o
}
