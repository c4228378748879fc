package nft_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/nftsim"
)

// TestSmallWorldsInTheMiddle commits a batch after each step of each packet on its way, in all transitions of one
// Service. The worlds with the two addresses exchanged are left out: nothing else distinguishes them. The packet
// reaches an endpoint that one of the two worlds names for its destination, if perhaps for another client,
// or the destination itself if one of them leaves it alone.
//
// It may be lost where both worlds forward it, and with two endpoints or fewer be refused. That needs a batch that
// sends a frontend to another list of endpoints or to another number of them, and a packet between two lookups.
func TestSmallWorldsInTheMiddle(t *testing.T) {
	r := newWorldRun(t)
	r.packets = slices.DeleteFunc(r.packets, func(c model.Connection) bool { return c.Protocol == model.UDP })
	var m middles
	transitions := 0
	for _, s := range slices.DeleteFunc(modeltest.ServiceStates("", true), modeltest.ServiceState.Exchanged) {
		for _, end := range slices.DeleteFunc(modeltest.ServiceStates("", false), modeltest.ServiceState.Exchanged) {
			transitions++
			m.from, m.to = modeltest.World{s}, modeltest.World{end}
			before, after := r.transition(m.from, m.to)
			m.names = map[netip.AddrPort]map[netip.AddrPort]bool{}
			m.name(t, before, r.packets)
			m.name(t, after, r.packets)
			for _, c := range r.packets {
				m.across(t, c, before, after)
			}
		}
	}
	t.Logf("%d transitions, %d packets, %d commits on their way: %d packets are dropped and %d refused that both worlds forward",
		transitions, m.packets, m.commits, m.dropped, m.refused)
}

// transition returns the tables before and after the batch from one world to another. New chains are there
// before: a packet that is in a base chain would find them empty.
func (r *worldRun) transition(from, to modeltest.World) (before, after *nftsim.Simulator) {
	r.t.Helper()
	r.known = chainTexts{}
	b, have := r.compiled(from)
	to.Set(b, from.Final())
	batch := nft.Diff(have, nft.Compile(have, b.Snapshot().Family(model.IPv4)))
	table := smallTableOf(have, r.known)
	table.sets = slices.Concat(table.sets, batch.AddSets)
	batch.AddSets = nil
	var sims []*nftsim.Simulator
	for _, piece := range [...][]*nft.Batch{batch.Ahead(1), {batch}} {
		for _, b := range piece {
			next, err := table.apply(b, r.known)
			if err != nil {
				r.t.Fatalf("from %v\nto   %v\n%v", from, to, err)
			}
			table = next
		}
		sim, err := nftsim.NewTable(table.table(), netip.MustParseAddr(modeltest.NodeIP4))
		if err != nil {
			r.t.Fatalf("from %v\nto   %v\n%v", from, to, err)
		}
		sims = append(sims, sim)
	}
	return sims[0], sims[1]
}

// middles counts what happened to packets on whose way a batch was committed.
type middles struct {
	packets, commits, dropped, refused int

	from, to modeltest.World
	names    map[netip.AddrPort]map[netip.AddrPort]bool // the endpoints of each destination
}

// name adds the endpoints that packets reach.
func (m *middles) name(t *testing.T, sim *nftsim.Simulator, packets []model.Connection) {
	t.Helper()
	for _, c := range packets {
		o, err := sim.Run(c)
		if err != nil {
			t.Fatal(err)
		}
		if m.names[c.Dest] == nil {
			m.names[c.Dest] = map[netip.AddrPort]bool{}
		}
		for to := range o.To {
			m.names[c.Dest][to] = true
		}
	}
}

// across runs a packet, with a commit after each of its steps.
func (m *middles) across(t *testing.T, c model.Connection, before, after *nftsim.Simulator) {
	t.Helper()
	m.packets++
	forwarded := true
	for _, sim := range [...]*nftsim.Simulator{before, after} {
		o, err := sim.Run(c)
		if err != nil {
			t.Fatal(err)
		}
		forwarded = forwarded && o.Verdict == model.Forwarded
	}
	for steps := 0; ; steps++ {
		got, happened, err := before.RunAcross(c, after, steps)
		if err != nil {
			t.Fatalf("from %v\nto   %v\n%+v: %v", m.from, m.to, c, err)
		}
		if !happened {
			return
		}
		m.commits++
		for to := range got.To {
			if !m.names[c.Dest][to] {
				t.Fatalf("from %v\nto   %v\n%+v, with a commit after step %d, goes to %v\nrules met: %q", m.from, m.to, c, steps, to, got.Trace)
			}
		}
		if forwarded && got.Verdict == model.Dropped {
			m.dropped++
		}
		if forwarded && got.Verdict == model.Rejected {
			m.refused++
		}
	}
}
