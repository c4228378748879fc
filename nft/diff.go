package nft

import (
	"iter"
	"maps"
	"slices"

	"github.com/vmapd/vmapd/model"
)

// Diff returns what turns one ruleset into another that was compiled after it. It
// costs what differs between them.
func Diff(have, want *Ruleset) *Batch {
	b := &Batch{Family: want.Family, newChains: map[string]bool{}}
	if len(have.Chains) != len(want.Chains) || &have.Chains[0] != &want.Chains[0] {
		b.diffChains(have.Chains, want.Chains)
	}
	gone, come := elements{}, elements{}
	if have.snapshot.Settings != want.snapshot.Settings {
		gone.collect(settingsElements(have.snapshot.Settings), nil)
		come.collect(settingsElements(want.snapshot.Settings), nil)
	}
	for c := range want.snapshot.ClusterIPChanges(have.snapshot) {
		if c.Old.IsValid() {
			gone.add(ClusterIPs, addrElement(c.Old))
		} else {
			come.add(ClusterIPs, addrElement(c.New))
		}
	}
	for c := range want.snapshot.HairpinChanges(have.snapshot) {
		if c.Old.IsValid() {
			gone.add(Hairpin, hairpinElement(c.Old))
		} else {
			come.add(Hairpin, hairpinElement(c.New))
		}
	}
	for c := range want.snapshot.ServicePortChanges(have.snapshot) {
		gone.collect(have.portElements(c.Old), c.Old)
		come.collect(want.portElements(c.New), c.New)
	}
	b.diffElements(gone, come)
	return b
}

// DiffTable returns what turns a table, as read from the kernel, into the wanted
// one. table is nil if there is none.
func DiffTable(table *Table, want *Ruleset) *Batch {
	b := &Batch{Family: want.Family, newChains: map[string]bool{}}
	if table != nil && !compatible(table.Sets, want.Sets) {
		b.DeleteTable = true
		table = nil
	}
	if table == nil {
		b.CreateTable = true
		table = &Table{Family: want.Family}
	}
	for _, s := range want.Sets {
		if _, ok := table.set(s.Name); !ok {
			b.AddSets = append(b.AddSets, s)
		}
	}
	for _, s := range table.Sets {
		if findSet(want.Sets, s.Name).Key == nil {
			b.DeleteSets = append(b.DeleteSets, s.Name)
		}
	}
	b.diffChains(table.Chains, want.Chains)
	gone := elements{}
	for _, s := range want.Sets {
		for _, e := range table.Elements[s.Name] {
			gone.add(s.Name, e)
		}
	}
	b.diffElements(gone, want.all())
	return b
}

// compatible reports whether sets of the same name are of the same type.
func compatible(have, want []Set) bool {
	for _, h := range have {
		w := findSet(want, h.Name)
		if w.Key == nil {
			continue
		}
		if !slices.Equal(h.Key, w.Key) || !slices.Equal(h.Data, w.Data) ||
			h.Verdicts != w.Verdicts || h.Interval != w.Interval {
			return false
		}
	}
	return true
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
		case h.Hook != c.Hook || h.Prio != c.Prio:
			b.RemakeBase = append(b.RemakeBase, c.Name)
		case sameRules(b.Family, h.Rules, c.Rules):
			continue
		}
		b.SetChains = append(b.SetChains, c)
	}
	b.DeleteChains = slices.Sorted(maps.Keys(byName))
}

func sameRules(f model.Family, a, b []Rule) bool {
	return slices.EqualFunc(a, b, func(a, b Rule) bool { return a.Text(f) == b.Text(f) })
}

// elements are elements by the name of their set, in the order of their arrival.
type elements map[string][]ElementOp

func (l elements) add(set string, e Element) { l[set] = append(l[set], ElementOp{Element: e}) }

func (l elements) collect(all iter.Seq2[string, Element], port *model.ServicePort) {
	for set, e := range all {
		l[set] = append(l[set], ElementOp{e, port})
	}
}

// all returns every element of the ruleset.
func (r *Ruleset) all() elements {
	count := map[string]int{}
	for sp := range r.snapshot.ServicePorts() {
		for _, fe := range sp.Frontends {
			count[mapsFor(fe.Kind).endpoints] += len(sp.Endpoints)
		}
	}
	list := elements{}
	for set, n := range count {
		list[set] = make([]ElementOp, 0, n)
	}
	list.collect(settingsElements(r.snapshot.Settings), nil)
	for a := range r.snapshot.ClusterIPs() {
		list.add(ClusterIPs, addrElement(a))
	}
	for a := range r.snapshot.Hairpins() {
		list.add(Hairpin, hairpinElement(a))
	}
	for sp := range r.snapshot.ServicePorts() {
		list.collect(r.portElements(sp), sp)
	}
	return list
}

// diffElements finds what must be deleted and added.
func (b *Batch) diffElements(gone, come elements) {
	for _, s := range LayoutSets() {
		del, add := diffSet(gone[s.Name], come[s.Name])
		if len(del) > 0 {
			b.Delete = append(b.Delete, SetOps{s.Name, del})
		}
		if len(add) > 0 {
			b.Add = append(b.Add, SetOps{s.Name, add})
		}
	}
}

// diffSet compares the elements of one set. What both have stays; an element whose data
// differs is deleted and added again, in one batch.
func diffSet(gone, come []ElementOp) (del, add []ElementOp) {
	if len(gone) == 0 || len(come) == 0 {
		return gone, come
	}
	old := make(map[string]int, len(gone))
	for i, op := range gone {
		old[op.Key] = i
	}
	stays := make([]bool, len(gone))
	for _, op := range come {
		i, ok := old[op.Key]
		if ok && gone[i].Element == op.Element {
			stays[i] = true
			continue
		}
		if ok { // what is replaced belongs to whom it will belong
			gone[i].Port = op.Port
		}
		add = append(add, op)
	}
	for i, op := range gone {
		if !stays[i] {
			del = append(del, op)
		}
	}
	return del, add
}
