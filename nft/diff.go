package nft

import (
	"iter"
	"maps"
	"slices"

	"github.com/vmapd/vmapd/model"
)

// Diff returns the batch that turns one ruleset into another that was compiled after it. The
// cost depends on the difference between them, not on their size.
func Diff(have, want *Ruleset) *Batch {
	b := newBatch(want.Family)
	if len(have.Chains) != len(want.Chains) || &have.Chains[0] != &want.Chains[0] {
		b.diffChains(have.Chains, want.Chains)
	}
	gone, come := elements{}, elements{}
	b.diffOptions(have, want, come)
	if have.snapshot.Settings != want.snapshot.Settings {
		settingsElements(have.snapshot.Settings, gone.of(nil))
		settingsElements(want.snapshot.Settings, come.of(nil))
	}
	collect(gone, come, ClusterIPs, want.snapshot.ClusterIPChanges(have.snapshot), addrElement)
	collect(gone, come, Hairpin, want.snapshot.HairpinChanges(have.snapshot), hairpinElement)
	collect(gone, come, ServiceEndpoints, want.snapshot.ServiceEndpointChanges(have.snapshot), endpointElement)
	for c := range want.snapshot.ServicePortChanges(have.snapshot) {
		d := want.slotDeltas(have, c.Old, c.New)
		have.portElements(c.Old, d.before, gone.of(c.Old))
		want.portElements(c.New, d.after, come.of(c.New))
		b.diffOwn(have, want, c.Old, c.New)
	}
	if have.snapshot.Settings != want.snapshot.Settings {
		for sp := range want.snapshot.ServicePorts() {
			if old, _ := have.snapshot.ServicePort(sp.Name); old == sp {
				b.diffOwn(have, want, sp, sp)
				have.noMemory(sp, gone.of(sp))
				want.noMemory(sp, come.of(sp))
			}
		}
	}
	b.diffElements(gone, come)
	b.guardRemoved()
	return b
}

func newBatch(f model.Family) *Batch {
	return &Batch{Family: f, newChains: map[string]bool{}, moreRules: map[string]bool{}, fewerRules: map[string]bool{}}
}

// diffOwn adds the operations on a service port's own objects.
func (b *Batch) diffOwn(have, want *Ruleset, old, now *model.ServicePort) {
	b.diffSets(ownSets(old), ownSets(now))
	b.diffChains(ownChains(old, have.snapshot.Settings), ownChains(now, want.snapshot.Settings))
	b.Purge = append(b.Purge, purge(old, now, false)...)
}

// DiffTable returns the batch that turns a table, as read from the kernel, into the wanted
// one. table is nil if there is none.
func DiffTable(table *Table, want *Ruleset) *Batch { return diffTable(table, want, false) }

// NewTable is DiffTable without a table. If there are more endpoints, or slots of them, than size, the batch lacks most of
// them and must be split: a list of all would take twice the memory of everything else.
func NewTable(want *Ruleset, size int) *Batch {
	endpoints := 0
	for sp := range want.snapshot.ServicePorts() {
		endpoints += max(len(sp.Endpoints), sp.Slots(model.Cluster)+sp.Slots(model.Local))
	}
	return diffTable(nil, want, endpoints > size)
}

func diffTable(table *Table, want *Ruleset, postpone bool) *Batch {
	b := newBatch(want.Family)
	if table != nil && !compatible(table.Sets, want.AllSets()) {
		b.DeleteTable = true
		table = nil
	}
	if table == nil {
		b.CreateTable = true
		table = &Table{Family: want.Family}
	}
	b.diffSets(table.Sets, want.AllSets())
	b.diffFlowtables(table.Flowtables, want.Flowtables())
	b.diffChains(table.Chains, want.AllChains())
	switch {
	case b.CreateTable && postpone:
		b.postponed = want.postpone()
		b.diffElements(nil, b.postponed.others())
	case b.CreateTable:
		b.diffElements(nil, want.all())
	default:
		b.diffTableElements(table, want)
		b.guardRemoved()
	}
	exists := setsByName(table.Sets)
	for sp := range want.snapshot.ServicePorts() {
		for _, s := range purge(nil, sp, true) {
			if exists[s.Map()] {
				b.Purge = append(b.Purge, s)
			}
		}
	}
	return b
}

// compatible reports whether the sets that stay have the wanted types. A set that is not wanted
// any more is deleted, whatever its type.
func compatible(sets, wanted []Set) bool {
	stay := setsByName(wanted)
	for _, have := range sets {
		if !stay[have.Name] {
			continue
		}
		want := DeclarationOf(have.Name)
		if !slices.Equal(have.Key, want.Key) || !slices.Equal(have.Data, want.Data) ||
			have.Verdicts != want.Verdicts || have.Interval != want.Interval || have.Dynamic != want.Dynamic {
			return false
		}
	}
	return true
}

func (b *Batch) diffSets(have, want []Set) {
	had, has := setsByName(have), setsByName(want)
	for _, s := range want {
		if !had[s.Name] {
			b.AddSets = append(b.AddSets, s)
		}
	}
	for _, s := range have {
		if !has[s.Name] {
			b.DeleteSets = append(b.DeleteSets, s.Name)
		}
	}
}

func setsByName(sets []Set) map[string]bool {
	names := make(map[string]bool, len(sets))
	for _, s := range sets {
		names[s.Name] = true
	}
	return names
}

func (b *Batch) diffChains(have, want []Chain) {
	byName := make(map[string]Chain, len(have))
	for _, c := range have {
		byName[c.Name] = c
	}
	for _, c := range want {
		h, ok := byName[c.Name]
		delete(byName, c.Name)
		switch {
		case !ok:
			b.newChains[c.Name] = true
		case h.Hook != c.Hook || h.Prio != c.Prio || h.Filter != c.Filter:
			b.RemakeBase = append(b.RemakeBase, c.Name)
		case sameRules(b.Family, h.Rules, c.Rules):
			continue
		case hasOptional(b.Family, h.Rules, c.Rules):
			b.moreRules[c.Name] = true
		case hasOptional(b.Family, c.Rules, h.Rules):
			b.fewerRules[c.Name] = true
		}
		b.SetChains = append(b.SetChains, c)
	}
	b.DeleteChains = append(b.DeleteChains, slices.Sorted(maps.Keys(byName))...)
}

func sameRules(f model.Family, a, b []Rule) bool {
	return slices.EqualFunc(a, b, func(a, b Rule) bool { return a.Text(f) == b.Text(f) })
}

// elements are operations by the name of their set, in the order in which they were added. Of a set
// with many, they are in several lists: a list that grows would be copied again and again, and one
// Service may have 65,000.
type elements map[string][][]ElementOp

// of returns a function that adds an element of a service port, or of none.
func (l elements) of(port *model.ServicePort) func(set string, e Element) {
	return func(set string, e Element) { l.add(set, ElementOp{e, port}) }
}

func (l elements) add(set string, op ElementOp) {
	const long = 16 << 10
	lists := l[set]
	last := len(lists) - 1
	switch {
	case last < 0 || len(lists[last]) == cap(lists[last]) && len(lists[last]) >= long:
		room := 1
		if last >= 0 {
			room = long
		}
		lists = append(lists, make([]ElementOp, 0, room))
		l[set] = lists
		last++
	case len(lists[last]) == cap(lists[last]):
		lists[last] = slices.Grow(lists[last], len(lists[last])) // append would grow it by a quarter
	}
	lists[last] = append(lists[last], op)
}

// collect adds the elements of one set for changes, each of which is an old value or a new one.
func collect[T comparable](gone, come elements, set string, changes iter.Seq[model.Change[T]], element func(T) Element) {
	var none T
	for c := range changes {
		if c.Old != none {
			gone.of(nil)(set, element(c.Old))
		} else {
			come.of(nil)(set, element(c.New))
		}
	}
}

// all returns every element of the ruleset.
func (r *Ruleset) all() elements {
	count := map[string]int{}
	for sp := range r.snapshot.ServicePorts() {
		for _, fe := range sp.Frontends {
			of := scopeOf(fe.Kind)
			count[of.set(roleDispatch)]++
			count[of.set(endpointsRole(fe.TrafficPolicy))] += max(len(sp.Endpoints), sp.Slots(fe.TrafficPolicy))
		}
	}
	for range r.snapshot.ClusterIPs() {
		count[ClusterIPs]++
	}
	list := elements{}
	for set, n := range count {
		list[set] = [][]ElementOp{make([]ElementOp, 0, n)}
	}
	r.each(list.add, nil)
	return list
}
