package nft

import (
	"maps"
	"slices"
)

// diffTableElements is diffElements without a list of all that is there, and another of all
// that is wanted: after a restart, they hardly differ.
func (b *Batch) diffTableElements(table *Table, want *Ruleset) {
	sets := map[string]*setDiff{}
	want.each(func(set string, op ElementOp) {
		d := sets[set]
		if d == nil {
			d = newSetDiff(table.Elements[set])
			sets[set] = d
		}
		d.want(op)
	})
	for set, have := range table.Elements {
		if sets[set] == nil {
			sets[set] = newSetDiff(have)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(sets)) {
		if slices.Contains(b.DeleteSets, name) {
			continue // with all that is in it
		}
		d := sets[name]
		if del := d.deletions(); len(del) > 0 {
			b.Delete = append(b.Delete, SetOps{name, del})
		}
		if len(d.add) > 0 {
			b.Add = append(b.Add, SetOps{name, d.add})
		}
	}
}

// setDiff compares one set's elements with those that are wanted. What both have stays; an
// element whose data differs is deleted and added again, in one batch.
type setDiff struct {
	have     *Elements
	wanted   []bool // by place in have
	matched  int    // how many of them
	del, add []ElementOp
}

func newSetDiff(have *Elements) *setDiff {
	d := &setDiff{have: have}
	if have.Len() > 0 {
		d.wanted = make([]bool, len(have.places))
	}
	return d
}

func (d *setDiff) want(op ElementOp) {
	if place, ok := d.have.find(op.Key); ok {
		if !d.wanted[place] {
			d.wanted[place] = true
			d.matched++
		}
		have := d.have.at(place)
		if have == op.Element {
			return
		}
		d.del = append(d.del, ElementOp{have, op.Port}) // it belongs to whom it will belong
	}
	d.add = append(d.add, op)
}

// deletions returns what is wanted otherwise, and what is not wanted.
func (d *setDiff) deletions() []ElementOp {
	if d.matched == d.have.Len() {
		return d.del
	}
	for e := range d.have.All() {
		if place, _ := d.have.find(e.Key); !d.wanted[place] {
			d.del = append(d.del, ElementOp{Element: e})
		}
	}
	return d.del
}
