// Package persist has maps that are values: an edit makes a new map, which shares its unchanged parts with the old one.
//
//	         shards, by the hash of the key
//	old ──> │ A │ B │ C │ D │ … ──Changes──> entries of B and B' that differ
//	          │       │   │
//	new ──> │ A │ B'│ C │ D │ …             Edit copied the array, and B alone
package persist

import (
	"iter"
	"slices"
)

// shardCount determines the size of the copies for one change: the array of shards (8 KiB)
// and one shard (about 43 of 44,000 entries).
const shardCount = 1024

// Map is a persistent map. The order of iteration depends on the content alone.
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
func (m Map[K, V]) Get(f KeyFuncs[K], k K) (value V, ok bool) {
	if _, s, i, found := m.find(f, k); found {
		return s[i].value, true
	}
	return value, false
}

// find returns the shard that a key belongs to, and the index that it has or would have.
func (m Map[K, V]) find(f KeyFuncs[K], k K) (shard uint64, s shard[K, V], i int, found bool) {
	shard = f.Hash(k) % shardCount
	if s = m.shard(shard); s == nil {
		return shard, nil, 0, false // without the garbage of a search
	}
	i, found = slices.BinarySearchFunc(s, k, func(e entry[K, V], k K) int { return f.Compare(e.key, k) })
	return shard, s, i, found
}

// shard returns a shard, which may be nil.
func (m Map[K, V]) shard(i uint64) shard[K, V] {
	if m.shards == nil || m.shards[i] == nil {
		return nil
	}
	return *m.shards[i]
}

// Len returns the number of keys.
func (m Map[K, V]) Len() int { return m.size }

// All yields every key and value.
func (m Map[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for i := range uint64(shardCount) {
			for _, e := range m.shard(i) {
				if !yield(e.key, e.value) {
					return
				}
			}
		}
	}
}

// Edit collects changes to a Map. Each shard is copied at most once per edit.
type Edit[K comparable, V comparable] struct {
	KeyFuncs[K]
	now  Map[K, V]
	from *[shardCount]*shard[K, V] // only shards that differ may be written; nil until something changes
}

// Edit begins a change.
func (m Map[K, V]) Edit(f KeyFuncs[K]) *Edit[K, V] {
	return &Edit[K, V]{KeyFuncs: f, now: m}
}

// own returns a shard that may be written.
func (e *Edit[K, V]) own(i uint64) *shard[K, V] {
	if e.from == nil {
		if e.from = e.now.shards; e.from == nil {
			e.from = new([shardCount]*shard[K, V])
		}
		copied := *e.from
		e.now.shards = &copied
	}
	if s := e.now.shards[i]; s == nil || s == e.from[i] {
		old := e.now.shard(i)
		s := append(make(shard[K, V], 0, len(old)+1), old...)
		e.now.shards[i] = &s
	}
	return e.now.shards[i]
}

// Get returns the value of a key after the changes so far.
func (e *Edit[K, V]) Get(k K) (value V, ok bool) {
	return e.now.Get(e.KeyFuncs, k)
}

// Set sets the value of a key, and reports whether the key is new. If the value differs, k
// itself replaces the key that compares equal.
func (e *Edit[K, V]) Set(k K, v V) bool {
	shard, old, i, found := e.now.find(e.KeyFuncs, k)
	if found && old[i].value == v {
		return false
	}
	s := e.own(shard)
	if found {
		(*s)[i] = entry[K, V]{k, v}
		return false
	}
	*s = slices.Insert(*s, i, entry[K, V]{k, v})
	e.now.size++
	return true
}

// Delete removes a key. It may be missing.
func (e *Edit[K, V]) Delete(k K) {
	shard, _, i, found := e.now.find(e.KeyFuncs, k)
	if !found {
		return
	}
	s := e.own(shard)
	*s = slices.Delete(*s, i, i+1)
	e.now.size--
}

// Done ends the edit and returns its map; without changes, that is the map it began with.
func (e *Edit[K, V]) Done() Map[K, V] {
	if e.from == nil {
		return e.now
	}
	for i, s := range e.now.shards {
		// Appending doubles the capacity of a new shard. A map may stay for long.
		if s != e.from[i] && cap(*s)-len(*s) > 1+len(*s)/8 {
			*s = append(make(shard[K, V], 0, len(*s)), *s...)
		}
	}
	e.from = nil // what is written from now on is not shared
	return e.now
}

// Change is one key with values that differ between two maps.
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
		for i := range uint64(shardCount) {
			if old.shards != nil && m.shards != nil && old.shards[i] == m.shards[i] {
				continue
			}
			if !mergeShards(f, old.shard(i), m.shard(i), yield) {
				return
			}
		}
	}
}

func mergeShards[K, V comparable](f KeyFuncs[K], a, b shard[K, V], yield func(Change[K, V]) bool) bool {
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
