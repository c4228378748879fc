// Package batch turns two rulesets, or a table and a ruleset, into operations that lead from one to the other.
//
//	compile.Ruleset, compile.Ruleset ──Diff────┐
//	nft.Table,       compile.Ruleset ──Pieces──┴──> Batch ──Transactions──> new sets and chains; changes; deletions
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

// Batch is what turns one state of a table into another. The fields are in the order in which they are carried out, see
// [Batch.Transactions].
type Batch struct {
	Family        model.Family
	DeleteTable   bool      // the table has another layout, and is made anew
	CreateTable   bool      // there is no table, or it is dormant
	AddSets       []nft.Set // declarations only
	AddFlowtables []nft.Flowtable
	AddTimeouts   []nft.Timeout // before the rules
	RemakeBase    []string      // base chains of SetChains with another hook: deleted first
	SetChains     []nft.Chain   // made or, unless NewChain says so, given other rules
	Delete        []Elements
	Add           []Elements

	// Chains and sets can only be deleted once nothing refers to them. Before Linux 6.2 the
	// kernel drops references only after the batch, so these follow in a batch of their own.
	DeleteChains     []string
	DeleteSets       []string
	DeleteFlowtables []string
	DeleteTimeouts   []string

	// Maps to purge after all that: packets change them meanwhile.
	Purge []compile.Purge

	newChains map[string]bool
}

// Elements are elements of one set to add or delete.
type Elements struct {
	Set  string
	List []nft.Element
}

// elements are those of operations by the name of their set, in the order in which they were added.
type elements map[string][]nft.Element

func (l elements) add(set string, e nft.Element) { l[set] = append(l[set], e) }

// list returns the operations on sets, sorted by their names.
func (l elements) list() []Elements {
	list := make([]Elements, 0, len(l))
	for set, ops := range l {
		if len(ops) > 0 {
			list = append(list, Elements{set, ops})
		}
	}
	slices.SortFunc(list, func(a, b Elements) int { return strings.Compare(a.Set, b.Set) })
	return list
}

// Empty reports whether there is nothing to do.
func (b *Batch) Empty() bool { return b.Len() == 0 }

// Len returns the number of operations.
func (b *Batch) Len() int {
	n := len(b.AddSets) + len(b.SetChains) + count(b.Delete) + count(b.Add) +
		len(b.DeleteChains) + len(b.DeleteSets) + len(b.AddFlowtables) + len(b.DeleteFlowtables) +
		len(b.AddTimeouts) + len(b.DeleteTimeouts)
	if b.CreateTable {
		n++
	}
	if b.DeleteTable {
		n++
	}
	return n
}

func count(list []Elements) int {
	n := 0
	for _, s := range list {
		n += len(s.List)
	}
	return n
}

// NewChain reports whether a chain of SetChains does not exist yet.
func (b *Batch) NewChain(name string) bool {
	return b.newChains[name] || slices.Contains(b.RemakeBase, name)
}

// String returns the batch as an nft script. Maps to purge are comments in it, because nft has no such command.
func (b *Batch) String() string {
	var s strings.Builder
	for op := range b.Ops(1) {
		fmt.Fprintln(&s, op.Text(b.Family))
	}
	for _, p := range b.Purge {
		fmt.Fprintf(&s, "# purge map %s %s %s\n", nft.FamilyWord(b.Family), nft.TableName, p.Map())
	}
	return s.String()
}

// Transactions yields the parts of a batch that the kernel carries out together or not at all, each as a batch.
//
// New sets and chains come ahead of all else, while nothing leads to them yet: a packet keeps the generation of rules
// with which it entered the base chain, but finds an element that is committed meanwhile, and a new chain to which it
// leads would be empty (nft_do_chain). And the kernel walks the whole map for each chain that begins to look into it
// (nf_tables_bind_set). A packet between two hooks during a commit may be dropped once, or keep its client's address,
// if its Service's traffic policy changes. Deletions of chains and sets come last: before Linux 6.2, the kernel drops
// references to them only at the end of a transaction.
func (b *Batch) Transactions() iter.Seq[*Batch] {
	ahead := &Batch{
		Family: b.Family, CreateTable: b.CreateTable, AddSets: b.AddSets, AddFlowtables: b.AddFlowtables,
		AddTimeouts: b.AddTimeouts, newChains: b.newChains,
	}
	change := &Batch{Family: b.Family, RemakeBase: b.RemakeBase, Delete: b.Delete, Add: b.Add, newChains: b.newChains}
	for _, c := range b.SetChains {
		if b.newChains[c.Name] && c.Hook == nft.NoHook {
			ahead.SetChains = append(ahead.SetChains, c)
		} else {
			change.SetChains = append(change.SetChains, c)
		}
	}
	if b.DeleteTable { // at once: no packet may meet a node without nat chains
		ahead, change = b, &Batch{}
	}
	last := &Batch{
		Family: b.Family, DeleteChains: b.DeleteChains, DeleteSets: b.DeleteSets, DeleteFlowtables: b.DeleteFlowtables,
		DeleteTimeouts: b.DeleteTimeouts,
	}
	return func(yield func(*Batch) bool) {
		for _, t := range [...]*Batch{ahead, change, last} {
			if !t.Empty() && !yield(t) {
				return
			}
		}
	}
}
