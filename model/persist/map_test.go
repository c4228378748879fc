package persist

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

// keys spread integers badly on purpose, so that shards hold several.
var keys = KeyFuncs[int]{
	Hash:    func(k int) uint64 { return uint64(k) / 3 },
	Compare: cmp.Compare[int],
}

func content(m Map[int, string]) map[int]string { return maps.Collect(m.All()) }

func check[T any](t *testing.T, what string, want, got T) {
	t.Helper()
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}

func TestMapIsWhatAMapIs(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			type version struct {
				m    Map[int, string]
				want map[int]string
			}
			versions := []version{{Map[int, string]{}, map[int]string{}}}
			for range 60 {
				base := versions[r.IntN(len(versions))]
				edit, want := base.m.Edit(keys), maps.Clone(base.want)
				for range r.IntN(12) {
					k := r.IntN(50)
					if r.IntN(3) == 0 {
						edit.Delete(k)
						delete(want, k)
					} else {
						v := string(rune('a' + r.IntN(3)))
						edit.Set(k, v)
						want[k] = v
					}
					probe := r.IntN(50)
					got, ok := edit.Get(probe)
					wantValue, wantOK := want[probe]
					if got != wantValue || ok != wantOK {
						t.Fatalf("Get(%d) within an edit = %q, %v; want %q, %v", probe, got, ok, wantValue, wantOK)
					}
				}
				versions = append(versions, version{edit.Done(), want})
			}
			for i, v := range versions {
				check(t, fmt.Sprintf("content of version %d, after all later ones", i), v.want, content(v.m))
				check(t, "length", len(v.want), v.m.Len())
				for k := range 50 {
					got, ok := v.m.Get(keys, k)
					want, wantOK := v.want[k]
					if got != want || ok != wantOK {
						t.Fatalf("version %d: Get(%d) = %q, %v; want %q, %v", i, k, got, ok, want, wantOK)
					}
				}
				other := versions[r.IntN(len(versions))]
				check(t, "changes", bruteForce(other.want, v.want), slices.Collect(v.m.Changes(keys, other.m)))
			}
		})
	}
}

// bruteForce finds the differences, in the order of Changes.
func bruteForce(old, now map[int]string) []Change[int, string] {
	all := maps.Clone(old)
	maps.Copy(all, now)
	var changes []Change[int, string]
	for _, k := range slices.Sorted(maps.Keys(all)) {
		c := Change[int, string]{Key: k}
		c.Old, c.InOld = old[k]
		c.New, c.InNew = now[k]
		if c.InOld != c.InNew || c.Old != c.New {
			changes = append(changes, c)
		}
	}
	return changes
}

func TestOrderDependsOnContentAlone(t *testing.T) {
	numbers := make([]int, 200)
	for i := range numbers {
		numbers[i] = i * 7
	}
	order := func(numbers []int) []int {
		e := Map[int, string]{}.Edit(keys)
		for _, n := range numbers {
			e.Set(n, "")
			e.Set(n+1, "")
		}
		for _, n := range numbers {
			e.Delete(n + 1)
		}
		var got []int
		for k := range e.Done().All() {
			got = append(got, k)
		}
		return got
	}
	want := order(numbers)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(numbers), func(i, j int) { numbers[i], numbers[j] = numbers[j], numbers[i] })
	check(t, "order of another history", want, order(numbers))
}

func TestUnchangedPartsAreShared(t *testing.T) {
	e := Map[int, string]{}.Edit(keys)
	for i := range 3000 {
		e.Set(i, "a")
	}
	m := e.Done()

	e = m.Edit(keys)
	e.Set(5, "a")
	e.Delete(9999)
	if same := e.Done(); same.shards != m.shards {
		t.Error("an edit that changed nothing made another map")
	}

	e = m.Edit(keys)
	e.Set(5, "b")
	e.Set(4, "b")
	next := e.Done()
	copied := 0
	for i := range shardCount {
		if next.shards[i] != m.shards[i] {
			copied++
		}
	}
	check(t, "shards copied for two keys of one shard", 1, copied)
	check(t, "changes", []Change[int, string]{
		{Key: 4, Old: "a", New: "b", InOld: true, InNew: true},
		{Key: 5, Old: "a", New: "b", InOld: true, InNew: true},
	}, slices.Collect(next.Changes(keys, m)))

	t.Run("a value set and set back is no change", func(t *testing.T) {
		e := next.Edit(keys)
		e.Set(4, "a")
		e.Set(5, "a")
		check(t, "changes", nil, slices.Collect(e.Done().Changes(keys, m)))
	})
}

// A key may be part of its value. The key of the old value would then keep all of it.
func TestAnotherValueBringsItsKey(t *testing.T) {
	byValue := KeyFuncs[*int]{
		Hash:    func(k *int) uint64 { return uint64(*k) },
		Compare: func(a, b *int) int { return cmp.Compare(*a, *b) },
	}
	key, same, next := new(5), new(5), new(5)
	e := Map[*int, string]{}.Edit(byValue)
	check(t, "new, when set for the first time", true, e.Set(key, "a"))
	check(t, "new, when set to the same", false, e.Set(same, "a"))
	first := e.Done()
	e = first.Edit(byValue)
	check(t, "new, when set to another value", false, e.Set(next, "b"))
	second := e.Done()

	for k := range first.All() {
		if k != key {
			t.Error("the key was exchanged though the value is the same")
		}
	}
	for k := range second.All() {
		if k != next {
			t.Error("the key of the value before is still there")
		}
	}
	find := func(n int) string {
		v, _ := second.Get(byValue, &n)
		return v
	}
	check(t, "found by what the key is made of", []string{"b", ""}, []string{find(5), find(5 + shardCount)})
}

func TestNoRoomIsLeft(t *testing.T) {
	e := Map[int, string]{}.Edit(keys)
	for i := range 50_000 {
		e.Set(i, "a")
	}
	size, room := 0, 0
	for _, s := range e.Done().shards {
		size, room = size+len(*s), room+cap(*s)
	}
	check(t, "entries", 50_000, size)
	if room > size*9/8 {
		t.Errorf("there is room for %d entries, but %d are there", room, size)
	}
}

func TestLoopsCanEndEarly(_ *testing.T) {
	e := Map[int, string]{}.Edit(keys)
	for i := range 10 {
		e.Set(i, "a")
	}
	m := e.Done()
	for range m.All() {
		break
	}
	for range m.Changes(keys, Map[int, string]{}) {
		break
	}
}
