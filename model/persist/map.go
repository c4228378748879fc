// Package persist has maps that are values: an edit makes a new map, which shares its
// unchanged parts with the old one.
package persist

import (
	"iter"
	"slices"
)

// shardCount determines the size of the copies for one change: the array of shards (8 KiB)
// and one shard (about 43 of 44,000 entries).
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

// KeyFuncs hash keys to shards and order them within one.
type KeyFuncs[K comparable] struct {
	Hash    func(K) uint64
	Compare func(a, b K) int
}

// Get returns the value of a key.
func (m Map[K, V]) Get(f KeyFuncs[K], k K) (V, bool) {
	return m.Find(f.Hash(k), func(other K) int { return f.Compare(other, k) })
}

// Find is Get for callers without a key: the wanted key has the hash, and compare orders
// another key against it as KeyFuncs.Compare does.
func (m Map[K, V]) Find(hash uint64, compare func(K) int) (value V, ok bool) {
	if m.shards != nil {
		if s := m.shards[hash%shardCount]; s != nil {
			if i, ok := s.find(compare); ok {
				return (*s)[i].value, true
			}
		}
	}
	return value, false
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

func (s shard[K, V]) find(compare func(K) int) (int, bool) {
	return slices.BinarySearchFunc(s, compare, func(e entry[K, V], compare func(K) int) int { return compare(e.key) })
}

// Edit collects changes to a Map. Each shard is copied at most once per edit.
type Edit[K comparable, V comparable] struct {
	KeyFuncs[K]
	base  Map[K, V]
	next  *[shardCount]*shard[K, V] // nil until something changes
	owned *[shardCount]bool         // likewise
	size  int
}

// Edit begins a change.
func (m Map[K, V]) Edit(f KeyFuncs[K]) *Edit[K, V] {
	return &Edit[K, V]{KeyFuncs: f, base: m, size: m.size}
}

// own returns a shard that may be written.
func (e *Edit[K, V]) own(i uint64) *shard[K, V] {
	if e.next == nil {
		e.next, e.owned = new([shardCount]*shard[K, V]), new([shardCount]bool)
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

// find returns the shard that a key belongs to, and the index that it has or would have.
func (e *Edit[K, V]) find(k K) (shard uint64, s *shard[K, V], i int, found bool) {
	shard = e.Hash(k) % shardCount
	shards := e.next
	if shards == nil {
		shards = e.base.shards
	}
	if shards == nil || shards[shard] == nil {
		return shard, nil, 0, false
	}
	s = shards[shard]
	i, found = s.find(func(other K) int { return e.Compare(other, k) })
	return shard, s, i, found
}

// Get returns the value of a key after the changes so far.
func (e *Edit[K, V]) Get(k K) (value V, ok bool) {
	if _, s, i, found := e.find(k); found {
		return (*s)[i].value, true
	}
	return value, false
}

// Set sets the value of a key, and reports whether the key is new. If the value differs, k
// itself replaces the key that compares equal.
func (e *Edit[K, V]) Set(k K, v V) bool {
	shard, s, i, found := e.find(k)
	if found && (*s)[i].value == v {
		return false
	}
	s = e.own(shard)
	if found {
		(*s)[i] = entry[K, V]{k, v}
		return false
	}
	*s = slices.Insert(*s, i, entry[K, V]{k, v})
	e.size++
	return true
}

// Delete removes a key. It may be missing.
func (e *Edit[K, V]) Delete(k K) {
	shard, _, i, found := e.find(k)
	if !found {
		return
	}
	s := e.own(shard)
	*s = slices.Delete(*s, i, i+1)
	e.size--
}

// Done ends the edit and returns its map; without changes, that is the map it began with.
func (e *Edit[K, V]) Done() Map[K, V] {
	if e.next == nil {
		return e.base
	}
	for i, owned := range e.owned {
		// Appending doubles the capacity of a new shard. A map may stay for long.
		if s := e.next[i]; owned && cap(*s)-len(*s) > 1+len(*s)/8 {
			*s = append(make(shard[K, V], 0, len(*s)), *s...)
		}
	}
	return Map[K, V]{shards: e.next, size: e.size}
}

// Change is one key whose value differs between two maps.
type Change[K comparable, V comparable] struct {
	Key          K
	Old, New     V // the zero value if the map has no such key
	InOld, InNew bool
}

// Changes yields the differences from old to m. It skips the shards that both share.
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
