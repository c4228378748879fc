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
		before, after := want.slotDeltas(have, c.Old, c.New)
		have.portElements(c.Old, before, gone.of(c.Old))
		want.portElements(c.New, after, come.of(c.New))
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
	b.diffElements(gone.shared(come), gone, come.each)
	b.guardRemoved()
	return b
}

func newBatch(f model.Family) *Batch { return &Batch{Family: f, newChains: map[string]bool{}} }

// diffOwn adds the operations on a service port's own objects.
func (b *Batch) diffOwn(have, want *Ruleset, old, now *model.ServicePort) {
	b.diffSets(ownSets(old), ownSets(now))
	b.diffChains(ownChains(old, have.snapshot.Settings), ownChains(now, want.snapshot.Settings))
	b.Purge = append(b.Purge, purge(old, now, false)...)
}

// collect adds the elements of one set for changes, each of which is an old value or a new one.
func collect[T comparable](
	gone, come elements, set string, changes iter.Seq[model.Change[T]], element func(T) Element,
) {
	var none T
	for c := range changes {
		if c.Old != none {
			gone.of(nil)(set, element(c.Old))
		} else {
			come.of(nil)(set, element(c.New))
		}
	}
}

// DiffTable returns the batch that turns a table, as read from the kernel, into the wanted
// one. table is nil if there is none.
func DiffTable(table *Table, want *Ruleset) *Batch {
	b := newBatch(want.Family)
	if table != nil && !compatible(table.Sets, want.AllSets()) {
		b.DeleteTable = true
		table = nil
	}
	b.CreateTable = table == nil
	if table == nil {
		table = &Table{Family: want.Family}
	}
	b.diffObjects(table, want)
	if b.CreateTable {
		b.Add = want.all().list()
		return b
	}
	b.diffElements(table.Elements, elements{}, want.each)
	b.guardRemoved()
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

// diffObjects adds the operations on all but elements.
func (b *Batch) diffObjects(table *Table, want *Ruleset) {
	b.diffSets(table.Sets, want.AllSets())
	b.diffFlowtables(table.Flowtables, want.Flowtables())
	b.diffChains(table.Chains, want.AllChains())
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
		}
		b.SetChains = append(b.SetChains, c)
	}
	b.DeleteChains = append(b.DeleteChains, slices.Sorted(maps.Keys(byName))...)
}

func sameRules(f model.Family, a, b []Rule) bool {
	return slices.EqualFunc(a, b, func(a, b Rule) bool { return a.Text(f) == b.Text(f) })
}
