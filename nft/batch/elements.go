package batch

import (
	"slices"
	"strings"

	"github.com/vmapd/vmapd/nft"
)

// elements are those of operations by the name of their set, in the order in which they were added.
type elements map[string][]nft.Element

func (l elements) add(set string, e nft.Element) { l[set] = append(l[set], e) }

// list returns the operations on sets, sorted by their names.
func (l elements) list() []Elements {
	list := make([]Elements, 0, len(l))
	for set, ops := range l {
		if len(ops) > 0 {
			list = append(list, Elements{set, ops})
		}
	}
	slices.SortFunc(list, func(a, b Elements) int { return strings.Compare(a.Set, b.Set) })
	return list
}
