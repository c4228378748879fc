package batch

import (
	"maps"
	"slices"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/compile"
)

// Diff returns the batch that turns one ruleset into another that was compiled after it.
func Diff(have, want *compile.Ruleset) *Batch {
	b := newBatch(want.Family)
	removed, added := elements{}, elements{}
	for c := range want.Changes(have) {
		c.Old.Elements(removed.of(c.Old.Port))
		c.New.Elements(added.of(c.New.Port))
		b.diffSets(c.Old.Sets, c.New.Sets)
		b.diffChains(c.Old.Chains, c.New.Chains)
		b.Purge = append(b.Purge, c.Purge...)
	}
	if len(removed)+len(added) > 0 { // else it is the other family that changed
		b.diffElements(&nft.Table{Elements: removed.shared(added)}, removed, added.each)
		b.addRemoved()
	}
	return b
}

func newBatch(f model.Family) *Batch { return &Batch{Family: f, newChains: map[string]bool{}} }

// DiffTable returns the batch that turns a table, as read from the kernel, into the wanted
// one. table is nil if there is none.
func DiffTable(table *nft.Table, want *compile.Ruleset) *Batch {
	b := newBatch(want.Family)
	if table != nil && !compatible(table.Sets, want.AllSets()) {
		b.DeleteTable = true
		table = nil
	}
	b.CreateTable = table == nil
	if table == nil {
		table = &nft.Table{Family: want.Family}
	}
	b.diffObjects(table, want)
	if b.CreateTable {
		all := elements{}
		for set, op := range want.Elements() {
			all.add(set, op)
		}
		b.Add = all.list()
		return b
	}
	b.diffElements(table, elements{}, want.Elements())
	b.addRemoved()
	exists := setsByName(table.Sets)
	for _, p := range want.Purges() {
		if exists[p.Map()] {
			b.Purge = append(b.Purge, p)
		}
	}
	return b
}

// diffObjects adds the operations on all but elements.
func (b *Batch) diffObjects(table *nft.Table, want *compile.Ruleset) {
	b.diffSets(table.Sets, want.AllSets())
	b.diffFlowtables(table.Flowtables, want.Flowtables())
	b.diffTimeouts(table.Timeouts, want.Options.Timeouts)
	b.diffChains(table.Chains, want.AllChains())
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

func (b *Batch) diffSets(have, want []nft.Set) {
	if len(have)+len(want) == 0 {
		return // as of most service ports
	}
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

func setsByName(sets []nft.Set) map[string]bool {
	names := make(map[string]bool, len(sets))
	for _, s := range sets {
		names[s.Name] = true
	}
	return names
}

func (b *Batch) diffChains(have, want []nft.Chain) {
	if len(have)+len(want) == 0 {
		return
	}
	same := func(x, y nft.Rule) bool { return x.Hash(b.Family) == y.Hash(b.Family) }
	byName := make(map[string]nft.Chain, len(have))
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
		case slices.EqualFunc(h.Rules, c.Rules, same) && !b.drops(c.Rules):
			continue
		}
		b.SetChains = append(b.SetChains, c)
	}
	b.DeleteChains = append(b.DeleteChains, slices.Sorted(maps.Keys(byName))...)
}

// diffTimeouts adds the operations that lead from some timeout policies to others. The kernel can't change one.
func (b *Batch) diffTimeouts(have, want []nft.Timeout) {
	for _, t := range want {
		i := slices.IndexFunc(have, func(h nft.Timeout) bool { return h.Name == t.Name })
		if i >= 0 && have[i].Has(t) {
			continue
		}
		if i >= 0 {
			b.DropTimeouts = append(b.DropTimeouts, t.Name)
		}
		b.AddTimeouts = append(b.AddTimeouts, t)
	}
}

// drops reports whether one of some rules uses a timeout policy that is made anew.
func (b *Batch) drops(rules []nft.Rule) bool {
	return len(b.DropTimeouts) > 0 && slices.ContainsFunc(rules, func(r nft.Rule) bool {
		return slices.ContainsFunc(r, func(s nft.Statement) bool {
			t, ok := s.(nft.SetTimeout)
			return ok && slices.Contains(b.DropTimeouts, t.Timeout)
		})
	})
}

// diffFlowtables adds the operations that lead from some flowtables to others.
func (b *Batch) diffFlowtables(have, want []nft.Flowtable) {
	lacks := func(list []nft.Flowtable, name string) bool {
		return !slices.ContainsFunc(list, func(t nft.Flowtable) bool { return t.Name == name })
	}
	for _, t := range want {
		if lacks(have, t.Name) {
			b.AddFlowtables = append(b.AddFlowtables, t)
		}
	}
	for _, t := range have {
		if lacks(want, t.Name) {
			b.DeleteFlowtables = append(b.DeleteFlowtables, t.Name)
		}
	}
}
