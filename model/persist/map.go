// Package persist has maps that are values: an edit makes a new map and leaves the old
// one as it was, sharing with it everything that did not change.
package persist

import (
	"iter"
	"slices"
)

// shardCount bounds what one change copies: the array of shards (8 KiB) and one
// shard (with 44,000 entries, about 43 of them).
const shardCount = 1024

// Map is a persistent sorted-by-shard map: an edit makes a new map that shares all
// unchanged shards with the old one. Iteration order depends on the content alone.
type Map[K comparable, V comparable] struct {
	shards *[shardCount]*shard[K, V] // nil means empty
	size   int
}

type shard[K comparable, V comparable] []entry[K, V] // sorted by key

type entry[K comparable, V comparable] struct {
	key   K
	value V
}

// KeyFuncs say how keys are spread over shards and ordered within one.
type KeyFuncs[K comparable] struct {
	Hash    func(K) uint64
	Compare func(a, b K) int
}

func (f KeyFuncs[K]) shard(k K) uint64 { return f.Hash(k) % shardCount }

// Get returns the value of a key.
func (m Map[K, V]) Get(f KeyFuncs[K], k K) (V, bool) {
	var none V
	if m.shards == nil || m.shards[f.shard(k)] == nil {
		return none, false
	}
	s := *m.shards[f.shard(k)]
	i, ok := s.find(f, k)
	if !ok {
		return none, false
	}
	return s[i].value, true
}

// Len returns the number of keys.
func (m Map[K, V]) Len() int { return m.size }

// All yields every key and value.
func (m Map[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		if m.shards == nil {
			return
		}
		for _, s := range m.shards {
			if s == nil {
				continue
			}
			for _, e := range *s {
				if !yield(e.key, e.value) {
					return
				}
			}
		}
	}
}

func (s shard[K, V]) find(f KeyFuncs[K], k K) (int, bool) {
	return slices.BinarySearchFunc(s, k, func(e entry[K, V], k K) int { return f.Compare(e.key, k) })
}

// Edit collects changes to a Map. Each shard is copied at most once per edit.
type Edit[K comparable, V comparable] struct {
	KeyFuncs[K]
	base  Map[K, V]
	next  *[shardCount]*shard[K, V] // nil until something changes
	owned [shardCount]bool
	size  int
}

// Edit begins a change.
func (m Map[K, V]) Edit(f KeyFuncs[K]) *Edit[K, V] {
	return &Edit[K, V]{KeyFuncs: f, base: m, size: m.size}
}

// own returns a shard that may be written.
func (e *Edit[K, V]) own(i uint64) *shard[K, V] {
	if e.next == nil {
		e.next = new([shardCount]*shard[K, V])
		if e.base.shards != nil {
			*e.next = *e.base.shards
		}
	}
	if !e.owned[i] {
		e.owned[i] = true
		var s shard[K, V]
		if old := e.next[i]; old != nil {
			s = append(make(shard[K, V], 0, len(*old)+1), *old...)
		}
		e.next[i] = &s
	}
	return e.next[i]
}

// Get returns the value of a key, as changed so far.
func (e *Edit[K, V]) Get(k K) (V, bool) {
	if e.next == nil {
		return e.base.Get(e.KeyFuncs, k)
	}
	return Map[K, V]{shards: e.next}.Get(e.KeyFuncs, k)
}

// Set gives a key a value.
func (e *Edit[K, V]) Set(k K, v V) {
	if old, ok := e.Get(k); ok && old == v {
		return
	}
	s := e.own(e.shard(k))
	i, found := s.find(e.KeyFuncs, k)
	if found {
		(*s)[i].value = v
		return
	}
	*s = slices.Insert(*s, i, entry[K, V]{k, v})
	e.size++
}

// Delete removes a key. It may be missing.
func (e *Edit[K, V]) Delete(k K) {
	if _, ok := e.Get(k); !ok {
		return
	}
	s := e.own(e.shard(k))
	i, _ := s.find(e.KeyFuncs, k)
	*s = slices.Delete(*s, i, i+1)
	e.size--
}

// Done returns the edited map; without changes, the very map the edit began with.
func (e *Edit[K, V]) Done() Map[K, V] {
	if e.next == nil {
		return e.base
	}
	return Map[K, V]{shards: e.next, size: e.size}
}

// Change is one key whose value differs between two maps.
type Change[K comparable, V comparable] struct {
	Key          K
	Old, New     V // the zero value where the map has no such key
	InOld, InNew bool
}

// Changes yields what differs from old to m. Shards that both share cost nothing.
func (m Map[K, V]) Changes(f KeyFuncs[K], old Map[K, V]) iter.Seq[Change[K, V]] {
	return func(yield func(Change[K, V]) bool) {
		if m.shards == old.shards {
			return
		}
		for i := range shardCount {
			var a, b *shard[K, V]
			if old.shards != nil {
				a = old.shards[i]
			}
			if m.shards != nil {
				b = m.shards[i]
			}
			if a != b && !mergeShards(f, a, b, yield) {
				return
			}
		}
	}
}

func mergeShards[K, V comparable](f KeyFuncs[K], pa, pb *shard[K, V], yield func(Change[K, V]) bool) bool {
	var a, b shard[K, V]
	if pa != nil {
		a = *pa
	}
	if pb != nil {
		b = *pb
	}
	for len(a) > 0 || len(b) > 0 {
		order := 0
		switch {
		case len(a) == 0:
			order = 1
		case len(b) == 0:
			order = -1
		default:
			order = f.Compare(a[0].key, b[0].key)
		}
		var c Change[K, V]
		if order <= 0 {
			c.Key, c.Old, c.InOld = a[0].key, a[0].value, true
			a = a[1:]
		}
		if order >= 0 {
			c.Key, c.New, c.InNew = b[0].key, b[0].value, true
			b = b[1:]
		}
		if c.InOld && c.InNew && c.Old == c.New {
			continue
		}
		if !yield(c) {
			return false
		}
	}
	return true
}
