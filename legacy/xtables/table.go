// Package xtables understands the tables of iptables-legacy as the kernel gives and takes them,
// so that chains can be removed on a node, or in a container, without the program. It takes values
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
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

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
	verdict     int    // offset in the table of the verdict
	standard    bool   // the target is a verdict
	chain       string // the chain that it belongs to; "" in built-in chains
	begins      bool   // a chain
}

// Chains returns the names of the chains that are not built in.
func (t *Table) Chains() ([]string, error) {
	list, err := t.read()
	var names []string
	for _, e := range list {
		if e.begins && e.chain != errorName {
			names = append(names, e.chain)
		}
	}
	return names, err
}

// Rules returns the number of rules of a chain that is not built in.
func (t *Table) Rules(chain string) (int, error) {
	list, err := t.read()
	n := 0
	for _, e := range list {
		if e.chain == chain && !e.begins {
			n++
		}
	}
	return max(0, n-1), err // the last entry is the return that ends it
}

// Owned counts the rules of the chains that ours selects, and the rules elsewhere that lead there. It
// makes no list of all entries: a table may have a hundred thousand.
func (t *Table) Owned(ours func(chain string) bool) (n int, err error) {
	type span struct{ from, to int }
	var own []span // where our chains are: few, since the programs sort chains by name
	isOurs := false
	err = t.each(func(e entry) {
		if e.begins {
			isOurs = ours(e.chain)
		}
		switch last := len(own) - 1; {
		case !isOurs:
			return
		case last >= 0 && own[last].to == e.offset:
			own[last].to = e.end
		default:
			own = append(own, span{e.offset, e.end})
		}
		n++
		if e.begins {
			n -= 2 // this entry, and the return that ends the chain
		}
	})
	if err != nil {
		return 0, err
	}
	within := func(offset int) bool {
		return slices.ContainsFunc(own, func(s span) bool { return s.from <= offset && offset < s.to })
	}
	err = t.each(func(e entry) {
		if within(t.jump(e)) && !within(e.offset) {
			n++
		}
	})
	return n, err
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
	e := entry{offset: at, end: at + next, verdict: at + target + targetData}
	name, _, _ := bytes.Cut(b[target+targetName:][:nameSize], []byte{0})
	data := b[target+targetData : next]
	isError := string(name) == errorName
	switch {
	case len(name) == 0 && len(data) >= 4:
		e.standard = true
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

// Without returns the table without the chains that theirs selects, and without the rules of
// other chains that lead there. kept has the former number of each entry. It returns nil if there
// are no such chains.
func (t *Table) Without(theirs func(chain string) bool) (rest *Table, kept []int, err error) {
	list, err := t.read()
	if err != nil {
		return nil, nil, err
	}
	at := func(offset int) (number int, ok bool) {
		return slices.BinarySearchFunc(list, offset, func(e entry, offset int) int { return cmp.Compare(e.offset, offset) })
	}
	moved := make([]uint32, len(list)) // by number: the new offset, or that of the next one
	rest = &Table{Info: t.Info, Family: t.Family}
	for i, e := range list {
		moved[i] = uint32(len(rest.Entries))
		goes := e.chain != "" && theirs(e.chain)
		if to := t.jump(e); to >= 0 && !goes {
			target, ok := at(to)
			if !ok {
				return nil, nil, fmt.Errorf("the entry at %d leads to %d, where no entry begins", e.offset, to)
			}
			goes = list[target].chain != "" && theirs(list[target].chain)
		}
		if !goes {
			kept = append(kept, i)
			rest.Entries = append(rest.Entries, t.Entries[e.offset:e.end]...)
		}
	}
	if len(kept) == len(list) {
		return nil, nil, nil
	}
	rest.NumEntries, rest.Size = uint32(len(kept)), uint32(len(rest.Entries))
	for _, i := range kept {
		if to := t.jump(list[i]); to >= 0 {
			shift := int(moved[i]) - list[i].offset
			target, _ := at(to)
			binary.NativeEndian.PutUint32(rest.Entries[list[i].verdict+shift:], moved[target])
		}
	}
	for hook := range t.HookEntry {
		if t.ValidHooks&(1<<hook) == 0 {
			continue
		}
		for _, offset := range []*uint32{&rest.HookEntry[hook], &rest.Underflow[hook]} {
			i, ok := at(int(*offset))
			if !ok {
				return nil, nil, fmt.Errorf("no entry begins at %d, where hook %d leads", *offset, hook)
			}
			*offset = moved[i]
		}
	}
	return rest, kept, nil
}

// jump returns the offset to which an entry leads, or -1. For a rule without a target, that is the
// next entry.
func (t *Table) jump(e entry) int {
	if !e.standard {
		return -1
	}
	return max(-1, int(int32(binary.NativeEndian.Uint32(t.Entries[e.verdict:]))))
}
