package batch_test

import (
	"flag"
	"fmt"
	"iter"
	"net/netip"
	"reflect"
	"runtime/debug"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/batch"
	"github.com/vmapd/vmapd/nft/compile"
	"github.com/vmapd/vmapd/nft/nftsim"
)

var worldsPart = flag.String("worlds", "", "`PART/PARTS` of all transitions between all worlds, from 1/1, which are 28 million, to PARTS/PARTS")

// A worldFact is what holds in a world, as it was compiled from nothing.
type worldFact struct {
	ends    []int // see worldRun.ends
	owners  []int // the number of the Service that has the destination, or -1
	plain   uint64
	reached uint64
}

// A worldRun goes through transitions between worlds.
type worldRun struct {
	t       *testing.T
	packets []model.Connection
	objects []modeltest.Object
	known   chainTexts

	ends  map[string]int // each outcome that a packet ever had, and its number
	texts []string       // of ends, by number
	list  []modeltest.Outcome
	facts map[modeltest.World]*worldFact
	cache map[uint64][]int // the outcomes of all packets, by the content of a table

	transitions, prefixes, looks int
}

func newWorldRun(t *testing.T) *worldRun {
	t.Helper()
	return &worldRun{
		t: t, packets: modeltest.WorldConnections(), objects: modeltest.WorldObjects(), known: chainTexts{},
		ends: map[string]int{}, facts: map[modeltest.World]*worldFact{}, cache: map[uint64][]int{},
	}
}

// number returns the number of an outcome.
func (r *worldRun) number(o modeltest.Outcome) int {
	text := o.Verdict.String()
	if o.TCPReset {
		text += " by a reset"
	}
	to := make([]string, 0, len(o.To))
	for a, how := range o.To {
		to = append(to, fmt.Sprintf(" %v (%.3f, masquerade %v, remembered in %v)", a, how.Share, how.Masquerade, how.Remembered))
	}
	sort.Strings(to)
	text += strings.Join(to, ",")
	n, ok := r.ends[text]
	if !ok {
		n = len(r.texts)
		r.ends[text] = n
		r.texts, r.list = append(r.texts, text), append(r.list, o)
	}
	return n
}

// endsOf returns the outcome of each packet.
func (r *worldRun) endsOf(table *smallTable) ([]int, error) {
	sum := table.sum ^ table.reached()
	if ends, ok := r.cache[sum]; ok {
		return ends, nil
	}
	sim, err := nftsim.New(table.table(), netip.MustParseAddr(modeltest.NodeIP4))
	if err != nil {
		return nil, fmt.Errorf("the table is not sound: %w", err)
	}
	ends := make([]int, len(r.packets))
	for i, c := range r.packets {
		o, err := sim.Run(c)
		if err != nil {
			return nil, err
		}
		ends[i] = r.number(o.Outcome)
	}
	r.looks++
	r.cache[sum] = ends
	return ends, nil
}

// fact returns what holds in a world. The model agrees with it.
func (r *worldRun) fact(w modeltest.World) *worldFact {
	if f := r.facts[w]; f != nil {
		return f
	}
	s := r.builder(w).Snapshot()
	ruleset := compile.Options{}.Compile(nil, s.Family(model.IPv4))
	table := smallTableOf(ruleset, r.known)
	ends, err := r.endsOf(table)
	if err != nil {
		r.t.Fatalf("%v: %v", w, err)
	}
	f := &worldFact{ends: ends, owners: make([]int, len(r.packets)), plain: table.plain, reached: table.reached()}
	for i, c := range r.packets {
		d := model.Decide(s, c)
		if want := r.expected(d, ends[i]); want != "" {
			r.t.Fatalf("%v: %+v: the rules: %s, the model: %s", w, c, r.texts[ends[i]], want)
		}
		if d.Why == model.UnusedPort {
			c.Dest = netip.AddrPortFrom(c.Dest.Addr(), modeltest.WorldPort)
			d = model.Decide(s, c)
		}
		if f.owners[i] = -1; d.Port != nil {
			f.owners[i] = int(d.Port.Name.Name[0] - 'a')
		}
	}
	r.facts[w] = f
	return f
}

// expected returns the outcome that a decision asks for, or "" if it is that of a number.
func (r *worldRun) expected(d model.Decision, end int) string {
	want := modeltest.Expected(d)
	for to, how := range want.To {
		for _, target := range d.Targets {
			if target.Addr != to || d.Port.Affinity == 0 {
				continue
			}
			for _, l := range model.TrafficPolicies {
				used := slices.ContainsFunc(d.Port.Frontends, func(fe model.Frontend) bool { return fe.Uses(l) })
				if target.In(l) && used {
					how.Remembered = append(how.Remembered, nft.AffinityMap(d.Port.Name, l))
				}
			}
		}
		slices.Sort(how.Remembered)
		want.To[to] = how
	}
	if r.number(want) == end {
		return ""
	}
	return r.texts[r.number(want)]
}

// builder returns a Builder that has a world.
func (r *worldRun) builder(w modeltest.World) *model.Builder {
	b := modeltest.Builder(modeltest.WorldConfig(), r.objects...)
	w.Set(b, modeltest.World{})
	return b
}

// all goes from each world to each. A world is a state of one list and one of another.
func (r *worldRun) all(from, to [2][]modeltest.ServiceState) {
	for _, a := range from[0] {
		for _, b := range from[1] {
			w := modeltest.World{a, b}
			r.known = chainTexts{} // the next ruleset has other chains
			_, have := r.compiled(w)
			table := smallTableOf(have, r.known)
			for _, toA := range to[0] {
				r.from(w, table, toA, to[1])
			}
		}
	}
}

// compiled returns a Builder that has a world, and the ruleset for it.
func (r *worldRun) compiled(w modeltest.World) (*model.Builder, *compile.Ruleset) {
	before := w.Before()
	b := r.builder(before)
	have := compile.Options{}.Compile(nil, b.Snapshot().Family(model.IPv4))
	if before != w {
		w.Set(b, before)
		have = compile.Options{}.Compile(have, b.Snapshot().Family(model.IPv4))
	}
	return b, have
}

// from goes from one world, which has a table, to others, whose first Service has the same state.
func (r *worldRun) from(w modeltest.World, table *smallTable, toA modeltest.ServiceState, toB []modeltest.ServiceState) {
	b, have := r.compiled(w)
	last := w
	for next := range sameFirst(w[1].Final(), toB) {
		to := modeltest.World{toA, next}
		to.Set(b, last.Final())
		last = to
		want := compile.Options{}.Compile(have, b.Snapshot().Family(model.IPv4))
		if !r.step(w, to, table, batch.Diff(have, want)) {
			r.t.FailNow()
		}
	}
}

// sameFirst yields states, the one that is given before the others: what was set once is another object.
func sameFirst(first modeltest.ServiceState, all []modeltest.ServiceState) iter.Seq[modeltest.ServiceState] {
	return func(yield func(modeltest.ServiceState) bool) {
		if slices.Contains(all, first) && !yield(first) {
			return
		}
		for _, s := range all {
			if s != first && !yield(s) {
				return
			}
		}
	}
}

// step checks a transition: see TestSmallWorlds.
func (r *worldRun) step(from, to modeltest.World, table *smallTable, changes *batch.Batch) bool {
	r.t.Helper()
	r.transitions++
	before, after := r.fact(from.Final()), r.fact(to)
	n := 0
	fail := func(format string, args ...any) bool {
		r.t.Helper()
		r.t.Errorf("from %v\nto   %v\nafter piece %d: %s", from, to, n, fmt.Sprintf(format, args...))
		return false
	}
	made := *table
	made.sets = slices.Concat(table.sets, changes.AddSets)
	table = &made
	changes.AddSets = nil
	for piece := range changes.Transactions() {
		n++
		r.prefixes++
		next, err := table.apply(piece, r.known)
		if err != nil {
			return fail("%v\n%s", err, piece)
		}
		table = next
		ends, err := r.endsOf(table)
		if err != nil {
			return fail("%v\n%s", err, piece)
		}
		if what := r.compare(before, after, ends); what != "" {
			return fail("%s\nthe piece:\n%s", what, piece)
		}
	}
	table, err := table.delete(changes)
	if err != nil {
		return fail("%v", err)
	}
	if table.plain != after.plain || table.reached() != after.reached {
		return fail("at the end, the table differs from one that is compiled from nothing")
	}
	ends, err := r.endsOf(table)
	if err != nil {
		return fail("%v", err)
	}
	if what := r.compare(after, after, ends); what != "" {
		return fail("at the end: %s", what)
	}
	return true
}

// masqueradedStill reports whether an outcome is that of after, but for masquerading as before.
func (r *worldRun) masqueradedStill(was, now, after int) bool {
	is, want := withSources(r.list[was], r.list[now], r.list[after]), r.list[after]
	return is.Verdict == want.Verdict && reflect.DeepEqual(is.To, want.To)
}

// compare checks the outcomes of all packets between two worlds.
func (r *worldRun) compare(before, after *worldFact, ends []int) string {
	const unknown, old, now = 0, 1, 2
	var side [2]int // of each Service
	for i, end := range ends {
		c := r.packets[i]
		if end != after.ends[i] && r.masqueradedStill(before.ends[i], end, after.ends[i]) {
			if end == before.ends[i] {
				continue // the packet is treated as before, or as after
			}
			end = after.ends[i]
		}
		if end != before.ends[i] && end != after.ends[i] {
			return fmt.Sprintf("%+v\nbefore: %s\nnow:    %s\nafter:  %s", c, r.texts[before.ends[i]], r.texts[end], r.texts[after.ends[i]])
		}
		if before.ends[i] == after.ends[i] {
			continue
		}
		is := old
		if end == after.ends[i] {
			is = now
		}
		owner := after.owners[i]
		if owner < 0 {
			owner = before.owners[i]
		}
		if owner < 0 {
			continue
		}
		if side[owner] == unknown {
			side[owner] = is
		}
		if side[owner] != is {
			return fmt.Sprintf("%+v\nnow: %s, while the Service's other packets are treated as %s", c, r.texts[end],
				[...]string{old: "before", now: "after"}[side[owner]])
		}
	}
	return ""
}

// TestSmallWorlds tries all transitions between all worlds of a list, and all pieces of the batch of each. After each
// piece, for each packet:
//
//   - it goes where it goes before the batch, or where it goes after: to the same endpoints with the same shares
//     and the same source address, or it is dropped or refused in the same way. So it never reaches an endpoint that
//     neither of them names, is never let through where both drop it, and never lost where both let it through. It may
//     go where it goes after, and be masqueraded as before;
//   - all packets of a Service change at once, whatever its addresses, ports and clients. If an address goes from one to
//     another, the packets there are those of the other.
//
// The last piece leads to what is compiled from nothing, but for the order of slots, and the model decides the same.
func TestSmallWorlds(t *testing.T) {
	const oftenEnough = 400
	defer debug.SetGCPercent(debug.SetGCPercent(oftenEnough)) // nothing lasts but the outcomes
	r := newWorldRun(t)
	states := 0
	for _, l := range smallWorlds(t) {
		r.all(l.from, l.to)
		states += len(l.from[0]) * len(l.from[1])
	}
	t.Logf("%d worlds, %d transitions, %d prefixes of batches, each with %d packets: %d of %d tables are different",
		states, r.transitions, r.prefixes, len(r.packets), r.looks, r.prefixes)
}

type worldList struct{ from, to [2][]modeltest.ServiceState }

// smallWorlds are the worlds of which all transitions are tried: each state of the first Service beside some of the second,
// or beside each, from a part of the states of the first.
func smallWorlds(t *testing.T) []worldList {
	t.Helper()
	every, finals := modeltest.ServiceStates("", true), modeltest.ServiceStates("", false)
	if *worldsPart != "" {
		var part, parts int
		if _, err := fmt.Sscanf(*worldsPart, "%d/%d", &part, &parts); err != nil || part < 1 || part > parts || parts > len(every) {
			t.Fatalf("-worlds=%s: want PART/PARTS, as in 1/24, and %d PARTS at most", *worldsPart, len(every))
		}
		var some []modeltest.ServiceState
		for i := part - 1; i < len(every); i += parts {
			some = append(some, every[i])
		}
		return []worldList{{[2][]modeltest.ServiceState{some, every}, [2][]modeltest.ServiceState{finals, finals}}}
	}
	others := []modeltest.ServiceState{
		{},
		{Place: modeltest.AtSecond, Endpoints: modeltest.Second},
		{Place: modeltest.AtSecondAndPort, Endpoints: modeltest.Both, Local: true, Sticky: true},
	}
	if testing.Short() {
		others = others[2:]
	}
	return []worldList{{[2][]modeltest.ServiceState{every, others}, [2][]modeltest.ServiceState{finals, others}}}
}
