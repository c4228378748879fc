package nft

import (
	"iter"
	"maps"
	"slices"
)

// A setDiff compares the elements of one set with those that are wanted, one after the other.
// Equal elements stay; an element whose data differs is deleted and added again, in one
// batch. A list of all wanted elements is not needed.
type setDiff struct {
	have     index
	wanted   []bool // by place in have
	unwanted int    // how many are not
	del, add []ElementOp
}

// An index finds elements by key. Each has a place in it.
type index interface {
	Len() int
	places() int // all are below
	find(key string) (place int, found bool)
	at(place int) Element
	all() iter.Seq2[int, ElementOp] // by place, in the order of the elements
}

func newSetDiff(have index) *setDiff {
	return &setDiff{have: have, wanted: make([]bool, have.places()), unwanted: have.Len()}
}

func (d *setDiff) want(op ElementOp) {
	if place, ok := d.have.find(op.Key); ok {
		if !d.wanted[place] {
			d.wanted[place] = true
			d.unwanted--
		}
		have := d.have.at(place)
		if have == op.Element {
			return
		}
		// The element's owner is the service port that will use it after the change.
		d.del = append(d.del, ElementOp{have, op.Port})
	}
	d.add = append(d.add, op)
}

// deletions returns the elements that are wanted with other data, and those that are not wanted.
func (d *setDiff) deletions() []ElementOp {
	if d.unwanted == 0 {
		return d.del
	}
	for place, op := range d.have.all() {
		if !d.wanted[place] {
			d.del = append(d.del, op)
		}
	}
	return d.del
}

// opIndex is an index of operations.
type opIndex struct {
	ops   []ElementOp
	byKey map[string]int
}

func newOpIndex(ops []ElementOp) opIndex {
	byKey := make(map[string]int, len(ops))
	for i, op := range ops {
		byKey[op.Key] = i
	}
	return opIndex{ops, byKey}
}

func (x opIndex) Len() int { return len(x.ops) }

func (x opIndex) places() int { return len(x.ops) }

func (x opIndex) find(key string) (int, bool) {
	i, ok := x.byKey[key]
	return i, ok
}

func (x opIndex) at(i int) Element { return x.ops[i].Element }

func (x opIndex) all() iter.Seq2[int, ElementOp] { return slices.All(x.ops) }

// diffElements finds what must be deleted and added.
func (b *Batch) diffElements(gone, come elements) {
	names := slices.Concat(slices.Collect(maps.Keys(gone)), slices.Collect(maps.Keys(come)))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		del, add := gone[name], come[name]
		if len(del) > 0 && len(add) > 0 {
			d := newSetDiff(newOpIndex(del))
			for _, op := range add {
				d.want(op)
			}
			del, add = d.deletions(), d.add
		}
		b.addOps(name, del, add)
	}
}

// diffTableElements is diffElements for a table that was read from the kernel. It makes no
// list of all that is wanted: after a restart, hardly anything differs.
func (b *Batch) diffTableElements(table *Table, want *Ruleset) {
	sets := map[string]*setDiff{}
	for set, have := range table.Elements {
		sets[set] = newSetDiff(have)
	}
	want.each(func(set string, op ElementOp) {
		d := sets[set]
		if d == nil {
			d = newSetDiff((*Elements)(nil))
			sets[set] = d
		}
		d.want(op)
	})
	for _, name := range slices.Sorted(maps.Keys(sets)) {
		b.addOps(name, sets[name].deletions(), sets[name].add)
	}
}

// addOps adds operations on one set to the batch, unless the set is deleted with all its
// elements.
func (b *Batch) addOps(set string, del, add []ElementOp) {
	if slices.Contains(b.DeleteSets, set) {
		return
	}
	if len(del) > 0 {
		b.Delete = append(b.Delete, SetOps{set, del})
	}
	if len(add) > 0 {
		b.Add = append(b.Add, SetOps{set, add})
	}
}
