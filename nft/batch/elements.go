package batch

import (
	"iter"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
)

// elements are operations by the name of their set, in the order in which they were added.
type elements map[string][]nft.ElementOp

// of returns a function that adds an element of a service port, or of none.
func (l elements) of(port *model.ServicePort) func(set string, e nft.Element) {
	return func(set string, e nft.Element) { l.add(set, nft.ElementOp{Element: e, Port: port}) }
}

func (l elements) add(set string, op nft.ElementOp) { l[set] = append(l[set], op) }

// emptied returns empty lists with room for as many operations.
func (l elements) emptied() elements {
	lists := make(elements, len(l))
	for set, ops := range l {
		lists[set] = make([]nft.ElementOp, 0, len(ops))
	}
	return lists
}

// each yields every element.
func (l elements) each(yield func(set string, op nft.ElementOp) bool) {
	for set, list := range l {
		for _, op := range list {
			if !yield(set, op) {
				return
			}
		}
	}
}

// shared takes the lists of sets that others have, too, to find their elements. Where all are the same, it takes both:
// another endpoint leaves most sets of a service port as they are.
func (l elements) shared(others elements) map[string]nft.Elements {
	all := map[string]nft.Elements{}
	for set, list := range l {
		if len(others[set]) == 0 {
			continue
		}
		delete(l, set)
		if slices.EqualFunc(list, others[set], func(a, b nft.ElementOp) bool { return a.Element == b.Element }) {
			delete(others, set)
			continue
		}
		all[set] = make(nft.Elements, len(list))
		for _, op := range list {
			all[set][op.Key] = op
		}
	}
	return all
}

// list returns the operations on sets, sorted by their names.
func (l elements) list() []SetOps {
	list := make([]SetOps, 0, len(l))
	for set, ops := range l {
		if len(ops) > 0 {
			list = append(list, SetOps{set, ops})
		}
	}
	slices.SortFunc(list, func(a, b SetOps) int { return strings.Compare(a.Set, b.Set) })
	return list
}

// diffElements finds what must be deleted and added, to have the wanted elements. Equal elements stay. An element with
// other data is deleted and added again, in one batch. removed has elements of other sets, which nothing replaces.
func (b *Batch) diffElements(have *nft.Table, removed elements, want iter.Seq2[string, nft.ElementOp]) {
	del, add, stay := removed, elements{}, map[string]int{}
	for set, op := range want {
		was, ok := have.Get(set, op.Key)
		switch {
		case !ok:
		case was.Element == op.Element:
			stay[set]++
			continue
		default:
			stay[set]++
			was.Port = op.Port // the service port that will use it
			del.add(set, was)
		}
		add.add(set, op)
	}
	for set, list := range leftovers(have, stay, want) {
		for _, key := range list {
			op, _ := have.Get(set, key)
			del.add(set, op)
		}
	}
	for _, set := range b.DeleteSets { // with all its elements
		delete(del, set)
	}
	b.Delete, b.Add = del.list(), add.list()
}

// leftovers returns the keys of elements that are not wanted, by set and sorted. So many of each set stay: mostly,
// these are all.
func leftovers(have *nft.Table, stay map[string]int, want iter.Seq2[string, nft.ElementOp]) map[string][]string {
	wanted := &nft.Table{Family: have.Family, Elements: map[string]nft.Elements{}, Slots: map[string]*nft.Slots{}}
	for set := range have.Elements {
		if have.Len(set) > stay[set] {
			wanted.Elements[set] = nft.Elements{}
			if have.Slots[set] != nil {
				wanted.Slots[set] = nft.NewSlots(have.Family, nft.DeclarationOf(set))
			}
		}
	}
	if len(wanted.Elements) == 0 {
		return nil
	}
	for set, op := range want {
		if wanted.Elements[set] != nil {
			wanted.Add(set, op.Element)
		}
	}
	left := map[string][]string{}
	for set := range wanted.Elements {
		for key := range have.Keys(set) {
			if _, ok := wanted.Get(set, key); !ok {
				left[set] = append(left[set], key)
			}
		}
		slices.Sort(left[set])
	}
	return left
}

// addRemoved adds the elements that come with a deletion.
func (b *Batch) addRemoved() {
	var ops []nft.ElementOp
	seen := map[string]bool{} // several service ports may lose the same one
	for _, s := range b.Delete {
		for _, op := range s.Ops {
			if e, ok := nft.Removed(s.Set, op.Element); ok && !seen[e.Key] {
				seen[e.Key] = true
				ops = append(ops, nft.ElementOp{Element: e, Port: op.Port})
			}
		}
	}
	if len(ops) > 0 {
		b.Add = append(b.Add, SetOps{nft.RemovedEndpoints, ops})
	}
}
