package nft

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// Table is the content of our table, as read from the kernel.
type Table struct {
	Family     model.Family
	Dormant    bool // its base chains are switched off
	Sets       []Set
	Timeouts   []Timeout
	Flowtables []Flowtable         // names alone
	Chains     []Chain             // rules that were read are a [ReadRule] each
	Elements   map[string]Elements // by set, but those in Slots
	Slots      map[string]*Slots   // by set; only of a table that was read from the kernel
}

// Add adds an element, unless its set has one with its key.
func (t *Table) Add(set string, e Element) {
	if t.Slots[set].add(e) {
		return
	}
	if t.Elements[set] == nil {
		t.Elements[set] = Elements{}
	}
	if _, ok := t.Elements[set][e.Key]; !ok {
		t.Elements[set][e.Key] = e
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
func (t *Table) Get(set, key string) (Element, bool) {
	if e, ok := t.Elements[set][key]; ok {
		return e, true
	}
	endpoint := t.Slots[set].at(key)
	return Element{Key: key, Data: string(endpoint)}, endpoint != nil
}

// Take removes the element of a set with a key, and returns it.
func (t *Table) Take(set, key string) (Element, bool) {
	e, ok := t.Get(set, key)
	if endpoint := t.Slots[set].at(key); endpoint != nil {
		clear(endpoint)
		t.Slots[set].n--
	}
	delete(t.Elements[set], key)
	return e, ok
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

// ReadRule stands for a rule that was read from the kernel, of which no more is known than the hash that it was written
// with, see [Rule.Hash]; 0: it has none, and is not ours.
type ReadRule struct{ Hash uint64 }

func (s ReadRule) text(model.Family) string { return fmt.Sprintf("# rule %x", s.Hash) }

// EndpointsOf returns the endpoints of a map in slots from 0 on, with keys that begin with that of a frontend.
func (t *Table) EndpointsOf(set, frontend string) (list []netip.AddrPort) {
	for i := uint32(0); ; i++ {
		e, ok := t.Get(set, string(AppendSlot([]byte(frontend), i)))
		if !ok {
			return list
		}
		ep, ok := Endpoint(e.Data)
		if !ok {
			return list
		}
		list = append(list, ep)
	}
}

// Elements are the elements of one set that a table has, by key.
type Elements map[string]Element

// Slots are the endpoints in the slots of frontends, as read from the kernel. They are elements of one map, but those
// of a frontend are kept together: a large cluster has a million, and as single elements these would take 200 MB.
type Slots struct {
	size int                // of an endpoint, in bytes
	data map[string]*[]byte // by the frontend's key: the endpoints of its slots in turn, zeros for an empty slot
	n    int                // slots that are not empty
}

// NewSlots returns those of a map of endpoints with nothing in it.
func NewSlots(f model.Family, s Set) *Slots {
	return &Slots{size: Width(f, s.Data), data: map[string]*[]byte{}}
}

// maxSlots is how many slots of a frontend are kept together. A Service has fewer.
const maxSlots = 1 << 17

// add adds an element, unless there is one with its key. It returns false for an element that we never make.
func (s *Slots) add(e Element) bool {
	at := len(e.Key) - RegisterSize
	if s == nil || at < 0 || e.Comment != "" || len(e.Data) != s.size || isEmpty([]byte(e.Data)) {
		return false
	}
	slot := decodeSlot(e.Key[at:])
	if slot >= maxSlots {
		return false
	}
	list, first := s.data[e.Key[:at]], int(slot)*s.size
	if list == nil {
		list = new([]byte)
		s.data[strings.Clone(e.Key[:at])] = list
	}
	if missing := first + s.size - len(*list); missing > 0 {
		*list = append(*list, make([]byte, missing)...)
	}
	if have := (*list)[first:][:s.size]; isEmpty(have) {
		copy(have, e.Data)
		s.n++
	}
	return true
}

// at returns the endpoint in a slot, nil if there is none.
func (s *Slots) at(key string) []byte {
	at := len(key) - RegisterSize
	if s == nil || at < 0 {
		return nil
	}
	list, first := s.data[key[:at]], int(decodeSlot(key[at:]))*s.size
	if list == nil || first+s.size > len(*list) || isEmpty((*list)[first:][:s.size]) {
		return nil
	}
	return (*list)[first:][:s.size]
}

// keys yields the keys of all elements, in any order.
func (s *Slots) keys(yield func(key string) bool) {
	if s == nil {
		return
	}
	for frontend, list := range s.data {
		for i := 0; i < len(*list); i += s.size {
			if !isEmpty((*list)[i:][:s.size]) && !yield(string(AppendSlot([]byte(frontend), uint32(i/s.size)))) {
				return
			}
		}
	}
}

func isEmpty(endpoint []byte) bool {
	return !slices.ContainsFunc(endpoint, func(b byte) bool { return b != 0 })
}
