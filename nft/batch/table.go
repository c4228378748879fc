package batch

import (
	"iter"
	"maps"
	"math"
	"slices"

	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/compile"
)

// DiffTable returns the batch that turns a table, as read from the kernel, into the wanted one; nil: there is none. It
// takes elements out of the table, which is of no more use.
func DiffTable(table *nft.Table, want *compile.Ruleset) *Batch {
	for all := range Pieces(table, want, math.MaxInt) {
		return all
	}
	return newBuilder(want.Family).Batch
}

// Pieces is DiffTable in batches of about size elements: during a transaction the kernel does nothing else for the
// table, and it needs memory for each operation.
//
//	1st      shared sets, timeout policies, chains that are new, also base chains; elements that all Services need
//	to n-th  the Services, the API server and DNS first. Of each: own sets and chains, what can be looked up, and then,
//	         together, the elements that lead there or refuse (nft.Leads). Refused is at last what no Service has
//	then     node ports of a new table; chains with other rules, and deletions of elements, those that lead first
//	last     deletions of chains and sets
//
// While a table is filled, each transaction leaves a Service as it was, or as it will be. One that packets meet already
// changes at once, up to 32,000 operations; behind so many, a Service may have endpoints of both states for a moment.
// Ranges of a set that has some others come with the deletions, since they must not overlap.
func Pieces(table *nft.Table, want *compile.Ruleset, size int) iter.Seq[*Batch] {
	return func(yield func(*Batch) bool) {
		w := &writer{
			builder: newBuilder(want.Family), final: newBuilder(want.Family), yield: yield, more: true, size: size,
			late: elements{}, leads: elements{},
		}
		w.begin(table, want)
		for unit := range want.Units() {
			if w.unit(unit); !w.more {
				return
			}
		}
		w.end()
	}
}

// writer yields a batch whenever there are enough operations.
type writer struct {
	*builder
	final *builder // for the last batches
	yield func(*Batch) bool
	more  bool
	size  int

	sets   map[string]bool      // of the table, but not met yet
	chains map[string]nft.Chain // of the table, but not met yet
	ranges map[string]bool      // sets of ranges with some in the table that nobody wants
	late   elements             // of these
	leads  elements             // of the present unit
}

// begin takes a table, and adds the operations on what all service ports share.
func (w *writer) begin(table *nft.Table, want *compile.Ruleset) {
	w.CreateTable = table == nil || table.Dormant
	if table != nil && !compatible(table.Sets, want.AllSets()) {
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
	w.ranges = unwantedRanges(w.have, want)
	flowtable, timeout := func(t nft.Flowtable) string { return t.Name }, func(t nft.Timeout) string { return t.Name }
	w.AddFlowtables, w.final.DeleteFlowtables = diffNames(w.have.Flowtables, want.Options.Flowtables(), flowtable)
	w.AddTimeouts, w.final.DeleteTimeouts = diffNames(w.have.Timeouts, want.Options.Timeouts, timeout)
	w.objects(want.Sets, want.Chains)
}

// objects adds the operations on sets and chains.
func (w *writer) objects(sets []nft.Set, chains []nft.Chain) {
	for _, s := range sets {
		if !w.sets[s.Name] {
			w.AddSets = append(w.AddSets, s)
			w.count++
		}
		delete(w.sets, s.Name)
	}
	for _, c := range chains {
		if have, ok := w.chains[c.Name]; ok {
			w.final.chain(have, true, c)
		} else {
			w.chain(nft.Chain{}, false, c)
			w.count++
		}
		delete(w.chains, c.Name)
	}
}

// unit adds the operations on a unit.
func (w *writer) unit(u compile.Unit) {
	for _, p := range u.Clients {
		if w.sets[p.Map()] {
			w.final.Purge = append(w.final.Purge, p)
		}
	}
	w.objects(u.Sets, u.Chains)
	u.Elements(func(set string, e nft.Element) {
		switch {
		case w.ranges[set], len(w.have.Chains) == 0 && nft.LeadsByNodePort(set):
			w.late.add(set, e) // an address of a Service has priority, and may be one of the node
		case nft.Leads(set):
			w.leads.add(set, e)
		default:
			w.element(set, e)
			w.flush()
		}
	})
	w.elements(w.leads)
	for set, list := range w.leads {
		w.leads[set] = list[:0]
	}
	w.flush()
}

func (w *writer) elements(all elements) {
	for set, list := range all {
		for _, e := range list {
			w.element(set, e)
		}
	}
}

// end yields the last batches.
func (w *writer) end() {
	w.elements(w.late)
	w.RemakeBase, w.SetChains = w.final.RemakeBase, append(w.SetChains, w.final.SetChains...)
	sets := slices.DeleteFunc(slices.Sorted(maps.Keys(w.have.Elements)), func(set string) bool { return w.sets[set] })
	for _, set := range sets {
		if nft.Leads(set) || w.ranges[set] {
			w.leftovers(set, func() {})
		}
	}
	for _, set := range sets {
		w.leftovers(set, w.flush)
	}
	w.DeleteSets, w.DeleteChains = slices.Sorted(maps.Keys(w.sets)), slices.Sorted(maps.Keys(w.chains))
	w.DeleteFlowtables, w.DeleteTimeouts, w.Purge = w.final.DeleteFlowtables, w.final.DeleteTimeouts, w.final.Purge
	if w.more {
		w.yield(w.done())
	}
}

// flush yields a batch if there are enough operations.
func (w *writer) flush() {
	if w.count >= w.size && w.more {
		have, add := w.have, w.add.emptied()
		w.more = w.yield(w.done())
		*w.builder = *newBuilder(have.Family)
		w.have, w.add = have, add
	}
}

// unwantedRanges returns the sets of ranges in which a table has some that a ruleset does not want.
func unwantedRanges(table *nft.Table, want *compile.Ruleset) map[string]bool {
	left := map[string]int{}
	for _, s := range table.Sets {
		if n := table.Len(s.Name); s.Interval && n > 0 {
			left[s.Name] = n
		}
	}
	if len(left) > 0 {
		for set, e := range want.Ranges() {
			if was, _ := table.Get(set, e.Key); left[set] > 0 && was == e {
				left[set]--
			}
		}
	}
	unwanted := map[string]bool{}
	for set, n := range left {
		unwanted[set] = n > 0
	}
	return unwanted
}

// compatible reports whether the sets that stay have the wanted types. A set that is not wanted
// any more is deleted, whatever its type.
func compatible(sets, wanted []nft.Set) bool {
	stay := setsByName(wanted)
	for _, have := range sets {
		if !stay[have.Name] {
			continue
		}
		want := nft.DeclarationOf(have.Name)
		if !slices.Equal(have.Key, want.Key) || !slices.Equal(have.Data, want.Data) ||
			have.Verdicts != want.Verdicts || have.Interval != want.Interval || have.Dynamic != want.Dynamic {
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
