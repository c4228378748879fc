package iptables_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/legacy/iptables/iptsim"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// The rules implement the decisions of modeltest.Memory.Decide.

// agree makes random connections, one after the other, and compares decisions with simulated
// outcomes. Each connection gets one of its targets, and the rules and the model remember it.
func agree(t *testing.T, r *modeltest.Random, s *model.Snapshot, all rulesets, mark uint32, connections int) {
	t.Helper()
	var sims [len(model.Families)]*iptsim.Simulator
	for _, f := range model.Families {
		sims[f] = iptsim.New(load(t, all[f]), s.Family(f).NodeAddrs...)
	}
	var memory modeltest.Memory
	clients := clients{}
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
		if d.Port != nil && d.Port.Affinity > 0 {
			clients.sendBack(s, &d, got.Outcome)
		}
		if how := modeltest.Expected(d).Disagrees(got.Outcome); how != "" {
			t.Fatalf("%+v\ndecided: %v, reason %d: %s\nrules met: %q", c, d.Verdict, d.Why, how, got.Trace)
		}
		checkRemembered(t, d, got)
		for to, a := range got.To {
			if a.Masquerade && a.Mark&mark != 0 {
				t.Fatalf("%+v: leaves the node to %v with the mark %#x", c, to, a.Mark)
			}
		}
		if d.Verdict != model.Forwarded {
			continue
		}
		to := d.Targets[r.IntN(len(d.Targets))]
		memory = memory.After(d, to)
		clients[client{c.Source, d.Port.Name, to.Addr}] = true
		for _, name := range got.To[to.Addr].Remembered {
			sims[f].Remember(name, c.Source)
		}
	}
}

// clients are all clients of the service ports' endpoints.
type clients map[client]bool

type client struct {
	addr     netip.Addr
	port     model.ServicePortName
	endpoint netip.AddrPort
}

// sendBack changes a decision about a client that got several of the targets by frontends with
// different traffic policies: it may come back to any of them (see docs/internals.md).
func (all clients) sendBack(s *model.Snapshot, d *model.Decision, got modeltest.Outcome) {
	var back []model.Target
	for _, target := range model.Decide(s, d.Connection).Targets {
		if all[client{d.Source, d.Port.Name, target.Addr}] {
			back = append(back, target)
		}
	}
	for _, target := range back {
		if _, ok := got.To[target.Addr]; ok && len(back) > 1 {
			d.Targets = []model.Target{target}
		}
	}
}

// checkRemembered checks that a client's endpoint is recorded with affinity, and only then.
func checkRemembered(t *testing.T, d model.Decision, got iptsim.Outcome) {
	t.Helper()
	want := 0
	if d.Port != nil && d.Port.Affinity > 0 {
		want = 1
	}
	lists := map[string]bool{}
	for to, a := range got.To {
		if d.Verdict == model.Forwarded && len(a.Remembered) != want {
			t.Fatalf("%+v: %v is remembered in %q, want %d lists", d.Connection, to, a.Remembered, want)
		}
		for _, name := range a.Remembered {
			if lists[name] {
				t.Fatalf("%+v: several endpoints have the list %s", d.Connection, name)
			}
			lists[name] = true
		}
	}
}

func markOf(o iptables.Options) uint32 {
	if o.MasqueradeMark == 0 {
		return iptables.DefaultMasqueradeMark
	}
	return o.MasqueradeMark
}

func TestTheRulesDoWhatIsDecided(t *testing.T) {
	const seeds, steps, connections = 60, 20, 40
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			r := modeltest.NewRandom(modeltest.Seed(seed))
			b := model.NewBuilder(configs[seed%uint64(len(configs))])
			o := options[seed%uint64(len(options))]
			for range steps {
				r.Steps(b, 1+r.IntN(6))
				s := b.Snapshot()
				agree(t, r, s, compileAll(rulesets{}, s, o), markOf(o), connections)
			}
		})
	}
}
