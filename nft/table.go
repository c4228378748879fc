package nft

import (
	"iter"
	"net/netip"

	"github.com/vmapd/vmapd/model"
)

// Table is the content of our table, as read from the kernel.
type Table struct {
	Family     model.Family
	Sets       []Set
	Flowtables []Flowtable         // names alone
	Chains     []Chain             // [Foreign] stands for rules that Compile never makes
	Elements   map[string]Elements // by set, but those in Slots
	Slots      map[string]*Slots   // by set; only of a table that was read from the kernel
}

// Add adds an element, unless its set has one with its key.
func (t *Table) Add(set string, e Element) {
	if !t.Slots[set].add(e) {
		t.Elements[set].Add(e)
	}
}

// Len returns how many elements a set has.
func (t *Table) Len(set string) int {
	n := len(t.Elements[set])
	if s := t.Slots[set]; s != nil {
		n += s.n
	}
	return n
}

// Get returns the element of a set with a key.
func (t *Table) Get(set, key string) (ElementOp, bool) {
	if op, ok := t.Elements[set][key]; ok {
		return op, true
	}
	data, ok := t.Slots[set].get(key)
	return ElementOp{Element: Element{Key: key, Data: data}}, ok
}

// Keys yields the keys of a set's elements, in any order.
func (t *Table) Keys(set string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for key := range t.Elements[set] {
			if !yield(key) {
				return
			}
		}
		t.Slots[set].keys(yield)
	}
}

// Foreign stands for a rule that Compile never makes.
type Foreign struct{ What string }

func (s Foreign) text(model.Family) string { return "# foreign: " + s.What }

// EndpointsOf returns the endpoints of a map in slots from 0 on, with keys that begin with that of a frontend. There
// may be about n.
func (t *Table) EndpointsOf(set, frontend string, n int) []netip.AddrPort {
	var list []netip.AddrPort
	for i := uint32(0); ; i++ {
		e, ok := t.Get(set, string(AppendSlot([]byte(frontend), i)))
		if !ok {
			return list
		}
		ep, ok := Endpoint(e.Data)
		if !ok {
			return list
		}
		if list == nil {
			list = make([]netip.AddrPort, 0, n)
		}
		list = append(list, ep)
	}
}

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
