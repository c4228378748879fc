package xtables

import (
	"bytes"
	"encoding/binary"
	"testing"

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
func sample(f model.Family) *Table {
	rules := [][]byte{
		entryOf(f, 8, "", verdict(0)), entryOf(f, 16, "", verdict(0)), entryOf(f, 0, "", verdict(0)), entryOf(f, 0, "", verdict(accept)),
		begin(f, "gone"), entryOf(f, 24, "", verdict(-1)),
		begin(f, "stays"), entryOf(f, 0, "DNAT", []byte("12345678")), entryOf(f, 0, "", verdict(-1)), begin(f, errorName),
	}
	for i, to := range []int{5, 2, 7} {
		copy(rules[i][len(rules[i])-len(verdict(0)):], verdict(offset(rules, to)))
	}
	return table(f, 3, rules...)
}

// No byte of a table leads to a panic.
func FuzzRead(f *testing.F) {
	for _, family := range model.Families {
		have := sample(family)
		f.Add(uint8(family), have.NumEntries, have.Underflow[0], have.Entries)
	}
	f.Fuzz(func(t *testing.T, family uint8, entries, underflow uint32, b []byte) {
		have := &Table{Family: model.Family(family % 2), Entries: b}
		have.NumEntries, have.ValidHooks, have.Underflow[0] = entries, 1, underflow
		if list, err := have.Read(); err == nil && len(list) != int(entries)-1 {
			t.Fatalf("%d entries of %d", len(list), entries)
		}
	})
}
