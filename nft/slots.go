package nft

import (
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// Slots are the endpoints in the slots of frontends, as read from the kernel. They are elements of one map, but those
// of a frontend are kept together: a large cluster has a million, and as single elements these would take 200 MB.
type Slots struct {
	size int               // of an endpoint, in bytes
	data map[string][]byte // by the frontend's key: the endpoints of its slots in turn, zeros for an empty slot
	n    int               // slots that are not empty
}

// NewSlots returns those of a map of endpoints with nothing in it.
func NewSlots(f model.Family, s Set) *Slots {
	return &Slots{size: Width(f, s.Data), data: map[string][]byte{}}
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
	if missing := first + s.size - len(list); missing > 0 {
		list = append(list, make([]byte, missing)...)
		s.data[strings.Clone(e.Key[:at])] = list
	}
	if have := list[first:][:s.size]; isEmpty(have) {
		copy(have, e.Data)
		s.n++
	}
	return true
}

// get returns the endpoint in a slot.
func (s *Slots) get(key string) (data string, ok bool) {
	at := len(key) - RegisterSize
	if s == nil || at < 0 {
		return "", false
	}
	list, first := s.data[key[:at]], int(decodeSlot(key[at:]))*s.size
	if first+s.size > len(list) || isEmpty(list[first:][:s.size]) {
		return "", false
	}
	return string(list[first:][:s.size]), true
}

// keys yields the keys of all elements, in any order.
func (s *Slots) keys(yield func(key string) bool) {
	if s == nil {
		return
	}
	for frontend, list := range s.data {
		for i := 0; i < len(list); i += s.size {
			if !isEmpty(list[i:][:s.size]) && !yield(string(AppendSlot([]byte(frontend), uint32(i/s.size)))) {
				return
			}
		}
	}
}

func isEmpty(endpoint []byte) bool {
	return !slices.ContainsFunc(endpoint, func(b byte) bool { return b != 0 })
}
