package batch

import (
	"iter"
	"slices"

	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/compile"
)

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
// A new table comes in pieces of size operations or a little more, if it has more: during a transaction the kernel does
// nothing else for the table, and it needs memory for each operation. Their order is that of
// [compile.Ruleset.Stages].
//
// A table that exists changes in one transaction, so that each packet meets the rules from before it or those from
// after. New sets and chains come ahead of it, to which nothing leads yet, for two reasons. A packet keeps the
// generation of rules with which it entered the base chain, but finds an element that is committed meanwhile: a new
// chain to which it leads would be empty, and the packet leave untranslated (nft_do_chain). And the kernel walks the
// whole map for each chain that begins to look into it (nf_tables_bind_set).
//
// A packet between two hooks during a commit meets the old rules of one and the new rules of the other: while its
// Service's traffic policy changes, it may be dropped once, or keep its client's address.
func (b *Batch) Pieces(size int) iter.Seq[*Batch] {
	return func(yield func(*Batch) bool) {
		switch {
		case b.large != nil:
			b.largePieces(size, yield)
		case b.CreateTable: // no packet has met the table
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
	ahead := &Batch{Family: b.Family, AddSets: b.AddSets, AddFlowtables: b.AddFlowtables, newChains: b.newChains}
	for _, c := range b.SetChains {
		if isAhead(c) {
			ahead.SetChains = append(ahead.SetChains, c)
		}
	}
	b.AddSets, b.AddFlowtables = nil, nil
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
