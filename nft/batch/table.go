package batch

import (
	"iter"
	"maps"
	"math"
	"slices"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/compile"
)

// Diff returns the batch that turns one ruleset into another that was compiled after it. The cost depends on the
// difference.
func Diff(have, want *compile.Ruleset) *Batch {
	old := &nft.Table{
		Family: want.Family, Elements: map[string]nft.Elements{},
		Flowtables: want.Options.Flowtables(), Timeouts: want.Options.Timeouts,
	}
	var units []compile.Unit
	r := replaced{del: elements{}, add: elements{}, had: elements{}, left: map[string]bool{}}
	for c := range want.Changes(have) {
		old.Sets, old.Chains = append(old.Sets, c.Old.Sets...), append(old.Chains, c.Old.Chains...)
		r.unit(&c)
		units = append(units, c.New)
	}
	for set, list := range r.had {
		if !r.left[set] {
			r.del[set] = append(r.del[set], list...)
			continue
		}
		for _, e := range list {
			old.Add(set, e)
		}
	}
	w := newWriter(want, math.MaxInt)
	w.del, w.add = r.del, r.add
	return whole(w.pieces(old, slices.Values(units), want), want.Family)
}

// replaced are the elements that get other data in the place where they were. While the frontends of a unit stay, most
// of its elements are the same, or these: a change of a Service with 30,000 frontends is found without a map of all.
type replaced struct {
	del, add elements
	had      elements        // of earlier units, with no place in the later ones
	left     map[string]bool // sets that units have other elements of
	old      []setElement
}

type setElement struct {
	set string
	nft.Element
}

// nearby is how far an element may be from its place: a frontend loses the slots of a few endpoints.
const nearby = 8

// unit compares the elements of a unit place by place. Those that are neither the same nor replaced are left in the
// unit.
func (r *replaced) unit(c *compile.Change) {
	r.old = r.old[:0]
	c.Old.Elements(func(set string, e nft.Element) { r.old = append(r.old, setElement{set, e}) })
	old := r.old
	var left []setElement
	c.New.Elements(func(set string, e nft.Element) {
		at := slices.IndexFunc(old[:min(nearby, len(old))], func(o setElement) bool { return o.set == set && o.Key == e.Key })
		if at < 0 {
			left = append(left, setElement{set, e})
			r.left[set] = true
			return
		}
		r.leave(old[:at])
		if was := old[at].Element; was != e {
			r.del.add(set, was)
			r.add.add(set, e)
		}
		old = old[at+1:]
	})
	r.leave(old)
	c.New.Elements = func(add compile.AddFunc) {
		for _, e := range left {
			add(e.set, e.Element)
		}
	}
}

func (r *replaced) leave(list []setElement) {
	for _, e := range list {
		r.had.add(e.set, e.Element)
	}
}

// DiffTable returns the batch that turns a table, as read from the kernel, into the wanted one; nil: there is none. It
// takes elements out of the table, which is of no more use.
func DiffTable(table *nft.Table, want *compile.Ruleset) *Batch {
	return whole(Pieces(table, want, math.MaxInt), want.Family)
}

func whole(pieces iter.Seq[*Batch], f model.Family) *Batch {
	for all := range pieces {
		return all
	}
	return &Batch{Family: f}
}

// Pieces is DiffTable in batches of about size elements, at most twice as many: during a transaction the kernel does
// nothing else for the table, and it needs memory for each operation.
//
//	1st      shared sets, timeout policies, chains that are new, also base chains; elements that all Services need
//	to n-th  the Services, the API server and DNS first. Of each: own sets and chains, what can be looked up, and then,
//	         together, the elements that lead there or refuse (nft.Leads). Refused is at last what no Service has
//	then     node ports of a new table; chains with other rules, and deletions of elements, those that lead first
//	last     deletions of chains and sets
//
// While a table is filled, each transaction leaves a Service as it was, or as it will be. One that packets meet already
// changes at once, up to 32,000 operations; behind so many, a Service may have endpoints of both states for a moment.
// Ranges of a set that has some come with the deletions, since they must not overlap, and with what leads to them.
func Pieces(table *nft.Table, want *compile.Ruleset, size int) iter.Seq[*Batch] {
	return newWriter(want, size).pieces(table, want.Units(), want)
}

func newWriter(want *compile.Ruleset, size int) *writer {
	return &writer{
		Batch: newBatch(want.Family), have: &nft.Table{}, del: elements{}, add: elements{}, more: true, size: size,
		ranges: map[string]bool{}, late: elements{}, leads: elements{},
	}
}

// pieces leads from a table, or the part of it that may differ, to some units of a ruleset.
func (w *writer) pieces(table *nft.Table, units iter.Seq[compile.Unit], want *compile.Ruleset) iter.Seq[*Batch] {
	return func(yield func(*Batch) bool) {
		w.yield = yield
		w.begin(table, want)
		for unit := range units {
			if w.unit(unit); !w.more {
				return
			}
		}
		w.end()
	}
}

func newBatch(f model.Family) *Batch { return &Batch{Family: f, newChains: map[string]bool{}} }

// writer yields a batch whenever there are enough operations.
type writer struct {
	*Batch
	final    Batch // for the last one
	del, add elements
	count    int // operations so far, about
	size     int
	yield    func(*Batch) bool
	more     bool

	have   *nft.Table           // takes what is wanted out, so that what nobody wants remains
	sets   map[string]bool      // of the table, but not met yet
	chains map[string]nft.Chain // of the table, but not met yet
	ranges map[string]bool      // sets of ranges with some in the table
	late   elements             // of these, and what leads to a Service with some
	leads  elements             // of the present unit
}

func (w *writer) begin(table *nft.Table, want *compile.Ruleset) {
	w.CreateTable = table == nil || table.Dormant
	if table != nil && !compatible(table.Sets, want.AllSets) {
		w.DeleteTable, w.CreateTable, table = true, true, nil
	}
	if table != nil {
		w.have = table
	}
	const atOnce, replacedAtOnce = 32_000, 256_000
	if w.DeleteTable {
		w.size = max(w.size, replacedAtOnce)
	}
	if slices.ContainsFunc(w.have.Chains, func(c nft.Chain) bool { return c.Hook != nft.NoHook }) {
		w.size = max(w.size, atOnce)
	}
	w.sets, w.chains = setsByName(w.have.Sets), map[string]nft.Chain{}
	for _, c := range w.have.Chains {
		w.chains[c.Name] = c
	}
	for _, s := range w.have.Sets {
		w.ranges[s.Name] = s.Interval && w.have.Len(s.Name) > 0
	}
	flowtable, timeout := func(t nft.Flowtable) string { return t.Name }, func(t nft.Timeout) string { return t.Name }
	w.AddFlowtables, w.final.DeleteFlowtables = diffNames(w.have.Flowtables, want.Options.Flowtables(), flowtable)
	w.AddTimeouts, w.final.DeleteTimeouts = diffNames(w.have.Timeouts, want.Options.Timeouts, timeout)
}

func (w *writer) unit(u compile.Unit) {
	for _, p := range u.Clients {
		if w.sets[p.Map()] {
			w.final.Purge = append(w.final.Purge, p)
		}
	}
	for _, s := range u.Sets {
		if !w.sets[s.Name] {
			w.AddSets = append(w.AddSets, s)
			w.count++
		}
		delete(w.sets, s.Name)
	}
	for _, c := range u.Chains {
		w.chain(c)
		delete(w.chains, c.Name)
	}
	isLate, begin := false, w.count
	u.Elements(func(set string, e nft.Element) {
		switch {
		case w.ranges[set]:
			w.late.add(set, e)
			isLate = true
		case len(w.have.Chains) == 0 && nft.LeadsByNodePort(set):
			w.late.add(set, e) // an address of a Service has priority, and may be one of the node
		case nft.Leads(set):
			w.leads.add(set, e)
		default:
			// If the process ends now, endpoints to which nothing leads must be listed at the next start, for which the
			// kernel needs long: a Service is in one piece if it fits into one. Its node ports may come late.
			if w.element(set, e); w.count-begin >= w.size {
				w.flush()
				begin = 0
			}
		}
	})
	if isLate {
		for set, list := range w.leads {
			w.late[set] = append(w.late[set], list...)
		}
	} else {
		w.elements(w.leads)
	}
	for set, list := range w.leads {
		w.leads[set] = list[:0]
	}
	w.flush()
}

func (w *writer) chain(want nft.Chain) {
	have, exists := w.chains[want.Name]
	same := func(x, y nft.Rule) bool { return x.Hash(w.Family) == y.Hash(w.Family) }
	switch {
	case !exists:
		w.newChains[want.Name] = true
		w.SetChains = append(w.SetChains, want)
		w.count++
		return
	case have.Hook != want.Hook || have.Prio != want.Prio || have.Filter != want.Filter || have.Drop != want.Drop:
		w.final.RemakeBase = append(w.final.RemakeBase, want.Name)
	case slices.EqualFunc(have.Rules, want.Rules, same):
		return
	}
	w.final.SetChains = append(w.final.SetChains, want)
}

// element adds the operations that lead to a wanted element. An equal one stays, and one with other data is deleted and
// added again.
func (w *writer) element(set string, e nft.Element) {
	was, ok := w.have.Take(set, e.Key)
	if ok && was == e {
		return
	}
	if ok {
		w.del.add(set, was)
	}
	w.add.add(set, e)
	w.count++
}

func (w *writer) elements(all elements) {
	for set, list := range all {
		for _, e := range list {
			w.element(set, e)
		}
	}
}

// leftovers deletes the elements of a set that nobody wants; those that lead somewhere at once.
func (w *writer) leftovers(set string, atOnce bool) {
	for _, key := range slices.Sorted(w.have.Keys(set)) {
		e, _ := w.have.Take(set, key)
		w.del.add(set, e)
		if w.count++; !atOnce {
			w.flush()
		}
	}
}

func (w *writer) end() {
	w.elements(w.late)
	w.RemakeBase, w.SetChains = w.final.RemakeBase, append(w.SetChains, w.final.SetChains...)
	// The elements of a set that is deleted go with it.
	sets := slices.DeleteFunc(slices.Sorted(maps.Keys(w.have.Elements)), func(set string) bool { return w.sets[set] })
	for _, atOnce := range [...]bool{true, false} {
		for _, set := range sets {
			if !atOnce || nft.Leads(set) || w.ranges[set] {
				w.leftovers(set, atOnce)
			}
		}
	}
	w.DeleteSets, w.DeleteChains = slices.Sorted(maps.Keys(w.sets)), slices.Sorted(maps.Keys(w.chains))
	w.DeleteFlowtables, w.DeleteTimeouts, w.Purge = w.final.DeleteFlowtables, w.final.DeleteTimeouts, w.final.Purge
	if w.more {
		w.yield(w.done())
	}
}

func (w *writer) flush() {
	if w.count >= w.size && w.more {
		next := make(elements, len(w.add)) // with room for as many: it is mostly like the one before
		for set, list := range w.add {
			next[set] = make([]nft.Element, 0, len(list))
		}
		w.more = w.yield(w.done())
		w.Batch, w.del, w.add, w.count = newBatch(w.Family), elements{}, next, 0
	}
}

// done returns the batch. An endpoint that a service port with affinity loses is noted as gone, once if several lose
// it.
func (w *writer) done() *Batch {
	gone := map[string]bool{}
	for _, e := range w.del[nft.AffinityEndpoints] {
		if endpoint := e.Key[2*nft.RegisterSize:]; !gone[endpoint] {
			gone[endpoint] = true
			w.add.add(nft.GoneEndpoints, nft.Element{Key: endpoint})
		}
	}
	w.Delete, w.Add = w.del.list(), w.add.list()
	return w.Batch
}

func setsByName(sets []nft.Set) map[string]bool {
	names := make(map[string]bool, len(sets))
	for _, s := range sets {
		names[s.Name] = true
	}
	return names
}

// compatible reports whether the sets that stay have the wanted types. A set that is not wanted
// any more is deleted, whatever its type.
func compatible(sets []nft.Set, wanted func() []nft.Set) bool {
	var stay map[string]bool
	for _, have := range sets {
		want := nft.DeclarationOf(have.Name)
		if slices.Equal(have.Key, want.Key) && slices.Equal(have.Data, want.Data) &&
			have.Verdicts == want.Verdicts && have.Interval == want.Interval && have.Dynamic == want.Dynamic {
			continue
		}
		if stay == nil {
			stay = setsByName(wanted())
		}
		if stay[have.Name] {
			return false
		}
	}
	return true
}

// diffNames returns the objects that must be added to have the wanted ones, and the names of those to delete.
func diffNames[T any](have, want []T, name func(T) string) (add []T, del []string) {
	has := func(list []T, t T) bool {
		return slices.ContainsFunc(list, func(o T) bool { return name(o) == name(t) })
	}
	for _, t := range want {
		if !has(have, t) {
			add = append(add, t)
		}
	}
	for _, t := range have {
		if !has(want, t) {
			del = append(del, name(t))
		}
	}
	return add, del
}
