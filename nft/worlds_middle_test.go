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

// TestSmallWorldsInTheMiddle commits each piece of a batch after each step of each packet on its way, in all
// transitions of one Service. The worlds with the two addresses exchanged are left out: nothing else distinguishes
// them. The packet reaches an endpoint that one of the two worlds names for its destination, if perhaps for another
// client, or the destination itself if one of them leaves it alone. Where both worlds send it to an
// endpoint, it reaches one, or is dropped if affinity would remember its endpoint, which is gone. If the endpoint
// stays one of its destination, the packet is masqueraded where all tables do so that send it there.
func TestSmallWorldsInTheMiddle(t *testing.T) {
	r := newWorldRun(t)
	r.packets = slices.DeleteFunc(r.packets, func(c model.Connection) bool { return c.Protocol == model.UDP })
	var m middles
	transitions := 0
	for _, s := range slices.DeleteFunc(modeltest.ServiceStates("", true), modeltest.ServiceState.Exchanged) {
		for _, end := range slices.DeleteFunc(modeltest.ServiceStates("", false), modeltest.ServiceState.Exchanged) {
			transitions++
			m.from, m.to = modeltest.World{s}, modeltest.World{end}
			sims := r.transition(m.from, m.to)
			m.names, m.stay = reached{}, reached{}
			m.name(t, sims[0], r.packets, m.names)
			m.name(t, sims[len(sims)-1], r.packets, m.names, m.stay)
			for i := range sims[1:] {
				for _, c := range r.packets {
					m.across(t, c, sims[i], sims[i+1])
				}
			}
		}
	}
	t.Logf("%d transitions, %d packets, %d commits on their way: %d packets are dropped that would be remembered at an endpoint that is gone",
		transitions, m.packets, m.commits, m.dropped)
}

// transition returns the tables before and after each piece of the batch from one world to another.
func (r *worldRun) transition(from, to modeltest.World) []*nftsim.Simulator {
	r.t.Helper()
	r.known = chainTexts{}
	b, have := r.compiled(from)
	to.Set(b, from.Final())
	batch := nft.Diff(have, nft.Compile(have, b.Snapshot().Family(model.IPv4)))
	table := smallTableOf(have, r.known)
	table.sets = slices.Concat(table.sets, batch.AddSets)
	batch.AddSets = nil
	sim := func() *nftsim.Simulator {
		made, err := nftsim.NewTable(table.table(), netip.MustParseAddr(modeltest.NodeIP4))
		if err != nil {
			r.t.Fatalf("from %v\nto   %v\n%v", from, to, err)
		}
		return made
	}
	sims := []*nftsim.Simulator{sim()}
	for piece := range batch.Split(batch.Len()) {
		next, err := table.apply(piece, r.known)
		if err != nil {
			r.t.Fatalf("from %v\nto   %v\n%v", from, to, err)
		}
		table = next
		sims = append(sims, sim())
	}
	return sims
}

// middles counts what happened to packets on whose way a batch was committed.
type middles struct {
	packets, commits, dropped int

	from, to modeltest.World
	// The endpoints of each destination in either world, and in the second one.
	names, stay reached
}

type reached map[netip.AddrPort]map[netip.AddrPort]bool

// name adds the endpoints that packets reach.
func (m *middles) name(t *testing.T, sim *nftsim.Simulator, packets []model.Connection, lists ...reached) {
	t.Helper()
	for _, c := range packets {
		o := m.run(t, c, sim)
		for _, list := range lists {
			if list[c.Dest] == nil {
				list[c.Dest] = map[netip.AddrPort]bool{}
			}
			for to := range o.To {
				list[c.Dest][to] = true
			}
		}
	}
}

func (m *middles) run(t *testing.T, c model.Connection, sim *nftsim.Simulator) nftsim.Outcome {
	t.Helper()
	o, err := sim.Run(c)
	if err != nil {
		t.Fatalf("from %v\nto   %v\n%+v: %v", m.from, m.to, c, err)
	}
	return o
}

// across runs a packet, with a commit after each of its steps.
func (m *middles) across(t *testing.T, c model.Connection, before, after *nftsim.Simulator) {
	t.Helper()
	m.packets++
	was, is := m.run(t, c, before), m.run(t, c, after)
	translated := func(o nftsim.Outcome) bool {
		_, alone := o.To[c.Dest]
		return o.Verdict == model.Forwarded && !alone
	}
	forwarded := translated(was) && translated(is)
	gone := false // an endpoint
	for to := range was.To {
		if _, ok := is.To[to]; !ok {
			gone = true
		}
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
		for to, how := range got.To {
			if m.stay[c.Dest][to] && !how.Masquerade && masquerades(was, is, to) {
				t.Fatalf("from %v\nto   %v\n%+v, with a commit after step %d, goes to %v with its source\nrules met: %q", m.from, m.to, c, steps, to, got.Trace)
			}
			if !m.names[c.Dest][to] {
				t.Fatalf("from %v\nto   %v\n%+v, with a commit after step %d, goes to %v\nrules met: %q", m.from, m.to, c, steps, to, got.Trace)
			}
		}
		if forwarded && got.Verdict == model.Dropped && m.from[0].Sticky && gone {
			m.dropped++
			continue
		}
		if forwarded && got.Verdict != model.Forwarded {
			t.Fatalf("from %v\nto   %v\n%+v, with a commit after step %d, is not forwarded: %v\nrules met: %q", m.from, m.to, c, steps, got.Verdict, got.Trace)
		}
	}
}

// masquerades reports whether a packet is masqueraded wherever it goes to an endpoint.
func masquerades(was, is nftsim.Outcome, to netip.AddrPort) bool {
	a, before := was.To[to]
	b, after := is.To[to]
	return (before || after) && (a.Masquerade || !before) && (b.Masquerade || !after)
}
