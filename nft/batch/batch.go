// Package batch turns two rulesets, or a table and a ruleset, into a [Batch] of operations that lead from one to the
// other.
package batch

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/compile"
)

// Batch is what turns one state of a table into another: a list of operations that the kernel carries out together or
// not at all. The fields are in the order in which they are carried out.
type Batch struct {
	Family        model.Family
	DeleteTable   bool      // the table has another layout, and is made anew
	CreateTable   bool      // there is no table
	AddSets       []nft.Set // declarations only
	AddFlowtables []nft.Flowtable
	DropTimeouts  []string      // timeout policies that AddTimeouts makes anew; SetChains has all rules that use them
	AddTimeouts   []nft.Timeout // before the rules
	RemakeBase    []string      // base chains of SetChains with another hook: deleted first
	SetChains     []nft.Chain   // made or, unless NewChain says so, given other rules
	Delete        []SetOps
	Add           []SetOps

	// Chains and sets can only be deleted once nothing refers to them. Before Linux 6.2 the
	// kernel drops references only after the batch, so these follow in a batch of their own.
	DeleteChains     []string
	DeleteSets       []string
	DeleteFlowtables []string

	// Maps to purge after all that: packets change them meanwhile.
	Purge []compile.Purge

	newChains map[string]bool
	large     *compile.Ruleset // Pieces makes its elements; nil: the batch has all
}

// SetOps are elements of one set to add or delete.
type SetOps struct {
	Set string
	Ops []nft.ElementOp
}

// Empty reports whether there is nothing to do.
func (b *Batch) Empty() bool { return b.Len() == 0 }

// Len returns the number of operations, without those that only Pieces makes.
func (b *Batch) Len() int {
	n := len(b.AddSets) + len(b.SetChains) + count(b.Delete) + count(b.Add) +
		len(b.DeleteChains) + len(b.DeleteSets) + len(b.AddFlowtables) + len(b.DeleteFlowtables) + len(b.AddTimeouts)
	if b.CreateTable {
		n++
	}
	if b.DeleteTable {
		n++
	}
	return n
}

func count(list []SetOps) int {
	n := 0
	for _, s := range list {
		n += len(s.Ops)
	}
	return n
}

// NewChain reports whether a chain of SetChains does not exist yet.
func (b *Batch) NewChain(name string) bool {
	return b.newChains[name] || slices.Contains(b.RemakeBase, name)
}

// Without removes the elements of some service ports from the batch.
func (b *Batch) Without(ports map[model.ServicePortName]bool) {
	for _, list := range [...][]SetOps{b.Delete, b.Add} {
		for i := range list {
			list[i].Ops = slices.DeleteFunc(list[i].Ops, func(op nft.ElementOp) bool {
				return op.Port != nil && ports[op.Port.Name]
			})
		}
	}
}

// String returns the batch as an nft script. Maps to purge are comments in it, because nft has no such command.
func (b *Batch) String() string {
	var s strings.Builder
	table := nft.FamilyWord(b.Family) + " " + nft.TableName
	line := func(format string, args ...any) { fmt.Fprintf(&s, format+"\n", args...) }
	if b.DeleteTable {
		line("delete table %s", table)
	}
	if b.CreateTable {
		line("add table %s { comment %q; }", table, nft.TableComment)
	}
	for _, set := range b.AddSets {
		line("add %s %s %s { %s; }", set.Word(), table, set.Name, strings.Join(set.Declaration(b.Family), "; "))
	}
	for _, t := range b.AddFlowtables {
		line("add flowtable %s %s { %s; }", table, t.Name, strings.Join(t.Declaration(), "; "))
	}
	for _, name := range b.RemakeBase {
		line("delete chain %s %s", table, name)
	}
	for _, c := range b.SetChains {
		switch {
		case c.Hook != nft.NoHook && b.NewChain(c.Name):
			line("add chain %s %s { %s }", table, c.Name, c.Declaration())
		case b.NewChain(c.Name):
			line("add chain %s %s", table, c.Name)
		default:
			line("flush chain %s %s", table, c.Name)
		}
	}
	for _, name := range b.DropTimeouts {
		line("delete ct timeout %s %s", table, name)
	}
	for _, t := range b.AddTimeouts {
		line("add ct timeout %s %s { %s; }", table, t.Name, strings.Join(t.Declaration(b.Family), "; "))
	}
	for _, c := range b.SetChains {
		for _, r := range c.Rules {
			line("add rule %s %s %s", table, c.Name, r.Text(b.Family))
		}
	}
	writeOps := func(verb string, lists []SetOps) {
		for _, list := range lists {
			set := nft.DeclarationOf(list.Set)
			for _, op := range list.Ops {
				line("%s element %s %s { %s }", verb, table, list.Set, set.Text(b.Family, op.Element))
			}
		}
	}
	writeOps("delete", b.Delete)
	writeOps("add", b.Add)
	for _, name := range b.DeleteChains {
		line("delete chain %s %s", table, name)
	}
	for _, name := range b.DeleteSets {
		line("delete %s %s %s", nft.DeclarationOf(name).Word(), table, name)
	}
	for _, name := range b.DeleteFlowtables {
		line("delete flowtable %s %s", table, name)
	}
	for _, p := range b.Purge {
		line("# purge map %s %s", table, p.Map())
	}
	return s.String()
}

// NewTable is DiffTable without a table. If the table has more than about size elements, the batch has none of them:
// [Batch.Pieces] makes them, piece by piece. A list of all would take twice the memory of everything else.
func NewTable(want *compile.Ruleset, size int) *Batch {
	if want.Size() <= size {
		return DiffTable(nil, want)
	}
	b := newBatch(want.Family)
	b.CreateTable, b.large = true, want
	b.diffObjects(&nft.Table{Family: want.Family}, want)
	return b
}

// Pieces yields the transactions that carry out a batch, but for the deletions of chains and sets.
//
// A new table comes in pieces of about size operations, in the order of [compile.Ruleset.Stages]: during a transaction
// the kernel does nothing else for the table, and it needs memory for each operation.
//
// A table that exists changes in one transaction. New sets and chains come ahead of it, to which nothing leads yet: a
// packet keeps the generation of rules with which it entered the base chain, but finds an element that is committed
// meanwhile, and a new chain to which it leads would be empty (nft_do_chain). And the kernel walks the whole map for
// each chain that begins to look into it (nf_tables_bind_set). A packet between two hooks during a commit may be
// dropped once, or keep its client's address, if its Service's traffic policy changes.
func (b *Batch) Pieces(size int) iter.Seq[*Batch] {
	return func(yield func(*Batch) bool) {
		switch {
		case b.large != nil:
			b.largePieces(size, yield)
		case b.CreateTable, len(b.DropTimeouts) > 0: // no packet has met the table, or new chains can't be ahead of objects
			yield(b)
		default:
			if ahead := b.ahead(); ahead.Empty() || yield(ahead) {
				yield(b)
			}
		}
	}
}

// ahead takes new sets from the batch, and new chains to which nothing leads yet.
func (b *Batch) ahead() *Batch {
	isAhead := func(c nft.Chain) bool {
		return b.newChains[c.Name] && (c.Hook == nft.NoHook || c.Ahead)
	}
	ahead := &Batch{
		Family: b.Family, AddSets: b.AddSets, AddFlowtables: b.AddFlowtables, AddTimeouts: b.AddTimeouts,
		newChains: b.newChains,
	}
	for _, c := range b.SetChains {
		if isAhead(c) {
			ahead.SetChains = append(ahead.SetChains, c)
		}
	}
	b.AddSets, b.AddFlowtables, b.AddTimeouts = nil, nil, nil
	b.SetChains = slices.DeleteFunc(b.SetChains, isAhead)
	return ahead
}

// largePieces yields the pieces of a large new table.
func (b *Batch) largePieces(size int, yield func(*Batch) bool) {
	ahead := b.ahead()
	ahead.DeleteTable, ahead.CreateTable = b.DeleteTable, true
	more := yield(ahead)
	next, count, add := &Batch{Family: b.Family, SetChains: b.SetChains, newChains: b.newChains}, 0, elements{}
	give := func() {
		next.Add = add.list()
		more = more && yield(next)
		next, count, add = &Batch{Family: b.Family}, 0, add.emptied()
	}
	for stage := range b.large.Stages() {
		stage.Elements(func(set string, op nft.ElementOp) {
			add.add(set, op)
			if count++; stage.Loose && count >= size {
				give()
			}
		})
		if next.SetChains != nil || count >= size {
			give()
		}
		if !more {
			return
		}
	}
	if count > 0 {
		give()
	}
}
