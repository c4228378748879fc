package nft

import "github.com/vmapd/vmapd/model"

// ElementOp is an element to add or delete.
type ElementOp struct {
	Element
	Port *model.ServicePort // the owner; nil for an element that no single Service determines
}

// Elements are the elements of one set that a table has, by key. Those that were read from the kernel have no owner.
type Elements map[string]ElementOp

// Add adds an element, unless there is one with its key.
func (l Elements) Add(e Element) {
	if _, ok := l[e.Key]; !ok {
		l[e.Key] = ElementOp{Element: e}
	}
}
