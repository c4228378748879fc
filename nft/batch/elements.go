package batch

import (
	"slices"
	"strings"

	"github.com/vmapd/vmapd/nft"
)

// elements are those of operations by the name of their set, in the order in which they were added.
type elements map[string][]nft.Element

// add doubles a list that is full: append alone copies the elements of a long one five times, by steps of a quarter.
func (l elements) add(set string, e nft.Element) {
	list := l[set]
	if len(list) == cap(list) {
		list = slices.Grow(list, max(4, len(list)))
	}
	l[set] = append(list, e)
}

// emptied returns empty lists with room for as many elements: the next piece is mostly like the one before.
func (l elements) emptied() elements {
	lists := make(elements, len(l))
	for set, list := range l {
		lists[set] = make([]nft.Element, 0, len(list))
	}
	return lists
}

// list returns the operations on sets, sorted by their names.
func (l elements) list() []Elements {
	list := make([]Elements, 0, len(l))
	for set, ops := range l {
		if len(ops) > 0 {
			list = append(list, Elements{set, ops})
		}
	}
	return sorted(list)
}

func sorted(list []Elements) []Elements {
	slices.SortStableFunc(list, func(a, b Elements) int { return strings.Compare(a.Set, b.Set) })
	return list
}
