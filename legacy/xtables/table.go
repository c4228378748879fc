// Package xtables reads the tables of iptables-legacy as the kernel gives them, for doctor and trace. It takes values
// and returns values; legacy/host has the system calls.
//
// A table is one block of entries (struct ipt_entry, struct ip6t_entry in linux/netfilter_ipv4 and
// _ipv6), each a rule with its matches and its target. The rules of a built-in chain begin at the
// offset that the table has for its hook, and end with the policy. An entry with the target ERROR
// begins each other chain and has its name; one with the name ERROR ends the table. A jump is a
// verdict: the offset of the first rule behind the entry that begins the chain.
package xtables

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vmapd/vmapd/model"
)

// Info describes a table, as struct ipt_getinfo does.
type Info struct {
	Name       [32]byte
	ValidHooks uint32
	HookEntry  [5]uint32
	Underflow  [5]uint32 // the offsets of the policies
	NumEntries uint32
	Size       uint32 // of all entries
}

// Table is a table with its entries.
type Table struct {
	Info
	Family  model.Family
	Entries []byte
}

// layout is where the fields of an entry are. 64-bit architectures agree.
type layout struct{ targetOffset, nextOffset, size int }

var layouts = [...]layout{
	model.IPv4: {targetOffset: 88, nextOffset: 90, size: 112},
	model.IPv6: {targetOffset: 140, nextOffset: 142, size: 168},
}

const (
	targetName = 2  // offset in struct xt_entry_target, behind its size
	nameSize   = 29 // with the zero that ends it
	targetData = 32 // the size of struct xt_entry_target
	chainSize  = 30 // of the name of a chain
	errorName  = "ERROR"
)

// entry is what matters of an entry.
type entry struct {
	offset, end int
	chain       string // the chain that it belongs to; "" in built-in chains
	begins      bool   // a chain
}

// read reads all entries.
func (t *Table) read() (list []entry, err error) {
	err = t.each(func(e entry) { list = append(list, e) })
	return list, err
}

// each passes on all entries, in their order.
func (t *Table) each(do func(entry)) error {
	n, chain := uint32(0), ""
	for at := 0; at < len(t.Entries); n++ {
		e, err := t.readEntry(at)
		if err != nil {
			return fmt.Errorf("entry at %d of %d bytes: %w", at, len(t.Entries), err)
		}
		if e.begins {
			chain = e.chain
		}
		e.chain = chain
		do(e)
		at = e.end
	}
	if chain != errorName || n != t.NumEntries {
		return fmt.Errorf("%d entries of %d, and no end", n, t.NumEntries)
	}
	return nil
}

func (t *Table) readEntry(at int) (entry, error) {
	l, b := layouts[t.Family], t.Entries[at:]
	if len(b) < l.size {
		return entry{}, errors.New("cut off")
	}
	target := int(binary.NativeEndian.Uint16(b[l.targetOffset:]))
	next := int(binary.NativeEndian.Uint16(b[l.nextOffset:]))
	if target < l.size || next < target+targetData || next > len(b) {
		return entry{}, fmt.Errorf("a target at %d, and the next entry at %d", target, next)
	}
	e := entry{offset: at, end: at + next}
	name, _, _ := bytes.Cut(b[target+targetName:][:nameSize], []byte{0})
	data := b[target+targetData : next]
	isError := string(name) == errorName
	switch {
	case len(name) == 0 && len(data) >= 4: // the target is a verdict
	case isError && len(data) >= chainSize:
		if e.begins, e.chain = true, text(data[:chainSize]); e.chain == "" { // that of built-in chains, see entry
			return entry{}, errors.New("a chain without a name")
		}
	case len(name) == 0 || isError:
		return entry{}, fmt.Errorf("a target %q of %d bytes", name, len(data))
	}
	return e, nil
}

// text returns a string that a zero ends.
func text(b []byte) string {
	s, _, _ := bytes.Cut(b, []byte{0})
	return string(s)
}
