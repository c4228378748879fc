package ipvs_test

import (
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/legacy/ipvs/ipvssim"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// Every prefix of a plan is safe.

func TestEveryPrefixOfAPlanIsSafe(t *testing.T) {
	seeds, least := uint64(1000), int64(100_000)
	if testing.Short() {
		seeds, least = 15, 25_000
	}
	var looked atomic.Int64
	t.Cleanup(func() {
		if n := looked.Load(); n < least {
			t.Errorf("only %d times was a packet sent while a plan was carried out", n)
		}
	})
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			r := modeltest.NewRandom(modeltest.Seed(1000 + seed))
			history(t, r, configs[seed%uint64(len(configs))], ipvs.Options{}, 25, func(s step) {
				looked.Add(int64(checkPrefixes(t, r, s, 12)))
			})
		})
	}
}

// watched is a connection with its outcomes before and after.
type watched struct {
	model.Connection
	before, after ipvssim.Outcome
	endpoints     map[netip.AddrPort]bool // of all service ports it is or was for, if the settings changed
}

// checkPrefixes sends packets after each operation of a plan. It returns how many.
func checkPrefixes(t *testing.T, r *modeltest.Random, s step, connections int) int {
	t.Helper()
	plan := ipvs.Diff(s.before, s.after)
	f := s.after.Family
	old, now := s.old.Family(f), s.now.Family(f)
	before, after := s.before.Content(), s.after.Content()
	simBefore, simAfter := simulate(t, before, old), simulate(t, after, now)
	var all []watched
	for i := range connections {
		from := []*model.Snapshot{s.old, s.now}[i%2]
		c := modeltest.Connection(r, from)
		if model.FamilyOf(c.Dest.Addr()) != f || c.Dest.Addr().IsLoopback() {
			continue
		}
		if !c.Node && (before.Addrs[c.Source] || after.Addrs[c.Source]) {
			continue // the kernel drops what arrives from an address of its own: ipvs.Differences
		}
		w := watched{Connection: c, before: run(t, simBefore, c), after: run(t, simAfter, c)}
		if old.Settings != now.Settings {
			w.endpoints = map[netip.AddrPort]bool{}
			for _, snapshot := range []*model.Snapshot{s.old, s.now} {
				d := model.Decide(snapshot, c)
				if d.Port == nil {
					continue
				}
				for _, in := range []*model.FamilySnapshot{old, now} {
					if sp, ok := in.ServicePort(d.Port.Name); ok {
						for _, e := range sp.Endpoints {
							w.endpoints[e.Addr] = true
						}
					}
				}
			}
		}
		all = append(all, w)
	}
	sendAlong(t, before, now, plan, all)
	return len(all) * len(plan)
}

// sendAlong sends packets after each operation of a plan.
func sendAlong(t *testing.T, content *ipvs.Content, now *model.FamilySnapshot, plan ipvs.Plan, all []watched) {
	t.Helper()
	sim := simulate(t, content, now)
	for i, op := range plan {
		if err := ipvssim.Apply(content, op); err != nil {
			t.Fatal(err)
		}
		for _, w := range all {
			got := run(t, sim, w.Connection)
			if err := w.check(got, content, now.NodeAddrs); err != nil {
				t.Fatalf("%+v\nafter %d operations: %v\nbefore: %v\nthen:   %v\nafter:  %v\nplan:\n%s",
					w.Connection, i+1, err, outcomeText(w.before), outcomeText(got), outcomeText(w.after),
					ipvssim.Text(plan))
			}
		}
	}
}

func outcomeText(o ipvssim.Outcome) string {
	return fmt.Sprintf("%v %v by %v: %q", o.Verdict, o.To, o.Server, o.Trace)
}

func forwarded(o ipvssim.Outcome) bool {
	return o.Verdict == model.Forwarded && o.Server != ipvs.Key{}
}

func goesOn(o ipvssim.Outcome) bool {
	return o.Verdict == model.Forwarded && o.Server == ipvs.Key{}
}

// canBeRefused includes connections to the node itself: most often, no process listens there.
func canBeRefused(o ipvssim.Outcome) bool { return o.Verdict == model.Rejected || goesOn(o) }

// check returns an error for an unsafe outcome.
func (w watched) check(got ipvssim.Outcome, content *ipvs.Content, nodeAddrs []netip.Addr) error {
	if w.endpoints != nil {
		return w.checkLoosely(got, content)
	}
	switch {
	case got.Node && !w.before.Node && !w.after.Node:
		return fmt.Errorf("is answered by the node")
	case goesOn(got) && !goesOn(w.before) && !goesOn(w.after):
		return fmt.Errorf("goes on as it is")
	case got.Verdict == model.Rejected && !canBeRefused(w.before) && !canBeRefused(w.after):
		return fmt.Errorf("is refused")
	case got.Verdict == model.Dropped && w.before.Verdict != model.Dropped && w.after.Verdict != model.Dropped:
		return fmt.Errorf("is dropped")
	case !forwarded(got):
		return nil
	}
	for addr, a := range got.To {
		before, inBefore := w.before.To[addr]
		after, inAfter := w.after.To[addr]
		switch {
		case !inBefore && !inAfter:
			return fmt.Errorf("is sent to %v", addr)
		case !a.Masquerade && (!inBefore || before.Masquerade) && (!inAfter || after.Masquerade):
			return fmt.Errorf("keeps its source to %v", addr)
		// A pod that moves to this node gets its hairpin entry first. Without it, it would not
		// hear an answer of its own.
		case a.Masquerade && !masquerades(w.before, nodeAddrs) && !masquerades(w.after, nodeAddrs) && addr.Addr() != w.Source:
			return fmt.Errorf("is masqueraded to %v", addr)
		}
	}
	return nil
}

// checkLoosely is for plans with other settings: the rules that distinguish inside from outside change
// at once, but endpoints change one by one.
func (w watched) checkLoosely(got ipvssim.Outcome, content *ipvs.Content) error {
	if got.Node && content.Addrs[w.Dest.Addr()] && !w.before.Node && !w.after.Node {
		return fmt.Errorf("is answered by the node")
	}
	if !forwarded(got) {
		return nil
	}
	for addr := range got.To {
		if !w.endpoints[addr] {
			return fmt.Errorf("is sent to %v", addr)
		}
	}
	return nil
}

// masquerades reports whether a connection is masqueraded, or would be if it did not go to the node itself alone:
// that shows no masquerade.
func masquerades(o ipvssim.Outcome, nodeAddrs []netip.Addr) bool {
	elsewhere := false
	for to, a := range o.To {
		if a.Masquerade {
			return true
		}
		elsewhere = elsewhere || !slices.Contains(nodeAddrs, to.Addr())
	}
	return forwarded(o) && !elsewhere
}
