package nft

import (
	"maps"
	"slices"
)

// A setDiff compares the elements of one set of the kernel with those that are wanted, one after
// the other. Equal elements stay; an element whose data differs is deleted and added again, in one
// batch. A list of all wanted elements is not needed.
type setDiff struct {
	have     *Elements
	wanted   []bool // by place in have
	unwanted int    // how many are not
	del, add []ElementOp
}

func newSetDiff(have *Elements) *setDiff {
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

// diffElements finds what must be deleted and added.
func (b *Batch) diffElements(gone, come elements) {
	names := slices.Concat(slices.Collect(maps.Keys(gone)), slices.Collect(maps.Keys(come)))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		del, add := gone[name], come[name]
		if len(del) > 0 && len(add) > 0 {
			differing(del, add)
		}
		b.addOps(name, del, add)
	}
}

// differing removes the elements that are both deleted and added. An element with other data stays in
// both, and its owner is the service port that will use it after the change.
func differing(del, add [][]ElementOp) {
	count := 0
	for _, list := range del {
		count += len(list)
	}
	deleted := make(map[string]*ElementOp, count)
	for _, list := range del {
		for i := range list {
			deleted[list[i].Key] = &list[i]
		}
	}
	stays := make(map[string]bool)
	for k, list := range add {
		add[k] = remove(list, func(op *ElementOp) bool {
			was := deleted[op.Key]
			switch {
			case was == nil:
				return false
			case was.Element == op.Element:
				stays[op.Key] = true
				return true
			}
			was.Port = op.Port
			return false
		})
	}
	if len(stays) == 0 {
		return
	}
	for k, list := range del {
		del[k] = remove(list, func(op *ElementOp) bool { return stays[op.Key] })
	}
}

// remove removes operations from a list. An operation is large: slices.DeleteFunc copies each one for
// the call.
func remove(list []ElementOp, yes func(op *ElementOp) bool) []ElementOp {
	left := 0
	for i := range list {
		if yes(&list[i]) {
			continue
		}
		if left < i {
			list[left] = list[i]
		}
		left++
	}
	clear(list[left:])
	return list[:left]
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
			d = newSetDiff(nil)
			sets[set] = d
		}
		d.want(op)
	}, nil)
	for _, name := range slices.Sorted(maps.Keys(sets)) {
		b.addOps(name, [][]ElementOp{sets[name].deletions()}, [][]ElementOp{sets[name].add})
	}
}

// addOps adds operations on one set to the batch, unless the set is deleted with all its
// elements.
func (b *Batch) addOps(set string, del, add [][]ElementOp) {
	if slices.Contains(b.DeleteSets, set) {
		return
	}
	into := func(to []SetOps, lists [][]ElementOp) []SetOps {
		for _, list := range lists {
			if len(list) > 0 {
				to = append(to, SetOps{set, list})
			}
		}
		return to
	}
	b.Delete, b.Add = into(b.Delete, del), into(b.Add, add)
}
