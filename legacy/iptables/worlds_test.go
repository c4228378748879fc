package iptables_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/legacy/iptables/iptsim"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// A worldFact is what holds in a world, as it was compiled from nothing.
type worldFact struct {
	tables *iptsim.Tables
	saved  string
	ends   []modeltest.Outcome
}

// ended returns the outcome of each packet.
func ended(t *testing.T, tables *iptsim.Tables, packets []model.Connection) []modeltest.Outcome {
	t.Helper()
	sim, err := iptsim.New(tables, netip.MustParseAddr(modeltest.NodeIP4))
	if err != nil {
		t.Fatal(err)
	}
	ends := make([]modeltest.Outcome, len(packets))
	for i, c := range packets {
		o, err := sim.Run(c)
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = o.Outcome
	}
	return ends
}

// strays returns an endpoint that a packet reaches and that neither of two outcomes names.
func strays(c model.Connection, now, before, after modeltest.Outcome) (netip.AddrPort, bool) {
	for to := range now.To {
		_, was := before.To[to]
		if _, is := after.To[to]; !was && !is && to != c.Dest {
			return to, true
		}
	}
	return netip.AddrPort{}, false
}

// TestSmallWorlds tries all transitions of one Service. A batch comes into force table by
// table: in between, no packet reaches an endpoint that it reaches neither before nor after. It may be refused, or
// let through to its own destination, too early (see docs/internals.md). At the end, the tables are those of the text that is compiled
// from nothing.
func TestSmallWorlds(t *testing.T) {
	packets := modeltest.WorldConnections()
	facts := map[modeltest.World]*worldFact{}
	builder := func(w modeltest.World) *model.Builder {
		b := modeltest.Builder(modeltest.WorldConfig(), modeltest.WorldObjects()...)
		w.Set(b, modeltest.World{})
		return b
	}
	fact := func(w modeltest.World) *worldFact {
		f := facts[w]
		if f == nil {
			tables := load(t, iptables.Compile(builder(w).Snapshot().Family(model.IPv4), options[0]))
			f = &worldFact{tables, tables.Save(), ended(t, tables, packets)}
			facts[w] = f
		}
		return f
	}
	transitions, prefixes := 0, 0
	step := func(from, to modeltest.World) {
		before, after := fact(from), fact(to)
		b := builder(from)
		have := iptables.Compile(b.Snapshot().Family(model.IPv4), options[0])
		to.Set(b, from)
		batch := iptables.Diff(have, iptables.Compile(b.Snapshot().Family(model.IPv4), options[0]))
		tables := before.tables.Clone()
		transitions++
		for text := range strings.SplitAfterSeq(batch.Text(), "\nCOMMIT\n") {
			if text == "" {
				continue
			}
			prefixes++
			if err := tables.Restore(text); err != nil {
				t.Fatalf("from %v\nto   %v: %v", from, to, err)
			}
			for i, now := range ended(t, tables, packets) {
				if at, yes := strays(packets[i], now, before.ends[i], after.ends[i]); yes {
					t.Fatalf("from %v\nto   %v\nafter\n%s%+v goes to %v: before %v, after %v\nrules met: %q",
						from, to, text, packets[i], at, before.ends[i].To, after.ends[i].To, now.Trace)
				}
			}
		}
		equal(t, fmt.Sprintf("from %v to %v: the tables", from, to), after.saved, tables.Save())
		if t.Failed() {
			t.FailNow()
		}
	}
	all := slices.DeleteFunc(modeltest.ServiceStates("", false), modeltest.ServiceState.Exchanged)
	for _, a := range all {
		for _, end := range all {
			step(modeltest.World{a}, modeltest.World{end})
		}
	}
	t.Logf("%d worlds, %d transitions, %d tables that came into force, %d packets each", len(facts), transitions, prefixes, len(packets))
}
