package batch

import (
	"slices"
	"strings"

	"github.com/vmapd/vmapd/nft"
)

// elements are those of operations by the name of their set, in the order in which they were added.
type elements map[string][]nft.Element

func (l elements) add(set string, e nft.Element) { l[set] = append(l[set], e) }

// emptied returns empty lists with room for as many operations.
func (l elements) emptied() elements {
	lists := make(elements, len(l))
	for set, ops := range l {
		lists[set] = make([]nft.Element, 0, len(ops))
	}
	return lists
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
		if slices.Equal(list, others[set]) {
			delete(others, set)
			continue
		}
		all[set] = make(nft.Elements, len(list))
		for _, e := range list {
			all[set][e.Key] = e
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
