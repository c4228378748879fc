package xtables

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/model"
)

const accept = -2 // -NF_ACCEPT - 1

// entryOf makes an entry with a match of some bytes.
func entryOf(f model.Family, match int, target string, data []byte) []byte {
	l := layouts[f]
	b := make([]byte, l.size+match+targetData+len(data))
	binary.NativeEndian.PutUint16(b[l.targetOffset:], uint16(l.size+match))
	binary.NativeEndian.PutUint16(b[l.nextOffset:], uint16(len(b)))
	copy(b[l.size+match+targetName:], target)
	copy(b[l.size+match+targetData:], data)
	return b
}

func verdict(n int) []byte {
	return append(binary.NativeEndian.AppendUint32(nil, uint32(int32(n))), 0, 0, 0, 0)
}

func begin(f model.Family, chain string) []byte {
	name := make([]byte, chainSize+2)
	copy(name, chain)
	return entryOf(f, 0, errorName, name)
}

// table joins entries. Its hooks are prerouting, at the first entry, and its policy, at the second
// last of the first chain.
func table(f model.Family, policy int, entries ...[]byte) *Table {
	t := &Table{Family: f, Entries: bytes.Join(entries, nil)}
	t.NumEntries, t.Size = uint32(len(entries)), uint32(len(t.Entries))
	t.ValidHooks = 1
	t.Underflow[0] = uint32(offset(entries, policy))
	return t
}

func offset(entries [][]byte, i int) int { return len(bytes.Join(entries[:i], nil)) }

// sample has a rule that leads to "gone", one without a target, and one that leads to "stays",
// which lies behind "gone".
func sample(f model.Family) (t *Table, want *Table) {
	sizes := [][]byte{entryOf(f, 8, "", verdict(0)), entryOf(f, 16, "", verdict(0)), entryOf(f, 0, "", verdict(0)), entryOf(f, 0, "", verdict(accept))}
	gone := [][]byte{begin(f, "gone"), entryOf(f, 24, "", verdict(-1))}
	stays := [][]byte{begin(f, "stays"), entryOf(f, 0, "DNAT", []byte("12345678")), entryOf(f, 0, "", verdict(-1)), begin(f, errorName)}
	entries := func(jumps [3]int, with ...[]byte) [][]byte {
		return append([][]byte{
			entryOf(f, 8, "", verdict(jumps[0])), entryOf(f, 16, "", verdict(jumps[1])), entryOf(f, 0, "", verdict(jumps[2])), sizes[3],
		}, with...)
	}
	all := slices.Concat(sizes, gone, stays)
	before := entries([3]int{offset(all, 5), offset(all, 2), offset(all, 7)}, slices.Concat(gone, stays)...)
	left := slices.Concat(sizes[1:], stays)
	after := entries([3]int{0, offset(left, 1), offset(left, 4)}, stays...)[1:]
	return table(f, 3, before...), table(f, 2, after...)
}

func TestWithout(t *testing.T) {
	for _, f := range model.Families {
		have, want := sample(f)
		got, kept, err := have.Without(func(chain string) bool { return chain == "gone" })
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%v (-want +got):\n%s", f, diff)
		}
		if diff := cmp.Diff([]int{1, 2, 3, 6, 7, 8, 9}, kept); diff != "" {
			t.Errorf("%v: kept entries (-want +got):\n%s", f, diff)
		}
		names, err := got.Chains()
		if err != nil || len(names) != 1 || names[0] != "stays" {
			t.Errorf("%v: chains %q, %v", f, names, err)
		}
		if again, _, err := got.Without(func(chain string) bool { return chain == "gone" }); again != nil || err != nil {
			t.Errorf("%v: once more: %v, %v", f, again, err)
		}
	}
}

// The entries that begin and end a chain are no rules of it.
func TestRules(t *testing.T) {
	for _, f := range model.Families {
		table, _ := sample(f)
		for chain, want := range map[string]int{"stays": 1, "gone": 0, "none": 0} {
			if got, err := table.Rules(chain); err != nil || got != want {
				t.Errorf("%v: the chain %q has %d rules, %v; want %d", f, chain, got, err, want)
			}
		}
	}
}

// No byte of a table leads to a panic, and what is returned can be read again.
func FuzzWithout(f *testing.F) {
	for _, family := range model.Families {
		have, _ := sample(family)
		f.Add(uint8(family), have.NumEntries, have.Underflow[0], have.Entries)
	}
	f.Fuzz(func(t *testing.T, family uint8, entries, underflow uint32, b []byte) {
		have := &Table{Family: model.Family(family % 2), Entries: b}
		have.NumEntries, have.ValidHooks, have.Underflow[0] = entries, 1, underflow
		theirs := func(chain string) bool { return len(chain)%2 == 0 }
		rest, kept, err := have.Without(theirs)
		if err != nil || rest == nil {
			return
		}
		names, err := rest.Chains()
		if err != nil || slices.ContainsFunc(names, theirs) || len(kept) != int(rest.NumEntries) {
			t.Fatalf("left are %q, %d entries of %d: %v", names, len(kept), rest.NumEntries, err)
		}
	})
}

// Our rules are those of our chains, wherever these lie, without their ends, and those of others
// that lead there.
func TestOwned(t *testing.T) {
	for _, f := range model.Families {
		isOurs := func(chain string) bool { return chain == "ours-1" || chain == "ours-2" || chain == "ours-3" }
		rule, end := entryOf(f, 8, "", verdict(accept)), entryOf(f, 0, "", verdict(-1))
		jump := func(list [][]byte, to int) []byte { return entryOf(f, 0, "", verdict(offset(list, to))) }
		entries := make([][]byte, 18)
		for i, e := range [][]byte{
			2: rule, 3: end,
			4: begin(f, "ours-1"), 5: rule, 7: end,
			8: begin(f, "ours-2"), 9: end,
			10: begin(f, "others"), 12: rule, 13: end,
			14: begin(f, "ours-3"), 15: rule, 16: end,
			17: begin(f, errorName),
		} {
			entries[i] = e
		}
		placeholder := entryOf(f, 0, "", verdict(0)) // as long as a jump
		for _, i := range []int{0, 1, 6, 11} {
			entries[i] = placeholder
		}
		entries[0] = jump(entries, 5)   // from a built-in chain to ours
		entries[1] = jump(entries, 11)  // to others'
		entries[6] = jump(entries, 9)   // within ours: counted as a rule
		entries[11] = jump(entries, 15) // from others' to ours
		const want = 1 + 1 + 2 + 0 + 1
		if got, err := table(f, 3, entries...).Owned(isOurs); err != nil || got != want {
			t.Errorf("%v: %d rules (%v), want %d", f, got, err, want)
		}
		if got, err := table(f, 3, entries...).Owned(func(string) bool { return false }); err != nil || got != 0 {
			t.Errorf("%v: %d rules of nobody (%v)", f, got, err)
		}
		cut := table(f, 3, entries...)
		cut.Entries = cut.Entries[:len(cut.Entries)-1]
		if _, err := cut.Owned(isOurs); err == nil {
			t.Errorf("%v: no error about a table that is cut off", f)
		}
	}
}
