package nft

import (
	"iter"
	"slices"
)

// maxPieces bounds into how many pieces the frontends of one batch are split: for each,
// the kernel validates all verdicts that the table has by then (nft_table_validate).
const maxPieces = 64

// Split divides a batch into pieces, which must be committed in their order, each in a transaction. The
// table and its sets must exist before. b keeps the chains and sets to delete and the maps to purge.
//
// First come new chains, to which nothing leads yet: so a packet that is in a chain during a commit finds no chain empty. A batch of up to size operations has one piece behind them; if it makes the
// table, it is one piece. A packet between two hooks during a commit meets the old rules of one and the new rules of the
// other: while its Service's traffic policy changes, it may be dropped once, or keep its client's address.
//
// A larger one has more: during a transaction the kernel does nothing else for the table, and it needs
// memory for each operation. The pieces have size operations or little more. After each piece, a packet
// meets the rules from before the batch or those from after it, or these and the masquerading of those. In a new table the endpoints come first. Then
// the Services come, each with all of its ports and addresses at once. A cluster IP, to whose
// other ports connections are rejected, comes with the frontends there. The ServiceCIDRs are
// last: in a new table, connections to their other addresses are not dropped before.
//
// The first elements are those of the cluster's API server and DNS.
//
// If a batch changes elements that concern all Services, such as the node's addresses, one
// piece has them and all frontends.
//
// The batch must not be used for anything else while the pieces come.
func (b *Batch) Split(size int) iter.Seq[*Batch] {
	return func(yield func(*Batch) bool) {
		each := func(pieces []*Batch) bool {
			for i, p := range pieces {
				pieces[i] = nil // the next one needs memory, too
				if !yield(p) {
					return false
				}
			}
			return true
		}
		small := b.Len() <= size && b.postponed == nil
		if small && b.CreateTable { // no packet has met the table
			yield(b)
			return
		}
		if !each(b.aheadChains()) {
			return
		}
		switch {
		case small:
		case !b.divisible():
			if !each(b.aheadElements(size)) {
				return
			}
		default:
			g := b.groups()
			if urgent := b.first(g); !urgent.Empty() && !yield(urgent) {
				return
			}
			for p := range b.postponed.pieces(size) {
				if !yield(p) {
					return
				}
			}
			if !each(b.aheadElements(size)) || !each(b.byService(g, size)) || !each(b.invalid(size)) {
				return
			}
		}
		yield(b)
	}
}

// deletions returns pieces that delete elements.
func (b *Batch) deletions(lists []SetOps, size int) (pieces []*Batch) {
	for part := range chunks(lists, size) {
		pieces = append(pieces, &Batch{Family: b.Family, Delete: part})
	}
	return pieces
}

// divisible reports whether Services can change one by one. The chains and elements that
// concern all of them must stay or, in a new table, come before them.
func (b *Batch) divisible() bool {
	if b.CreateTable {
		return true
	}
	for _, c := range b.SetChains {
		if !isOwn(c.Name) && !b.fewerRules[c.Name] {
			return false
		}
	}
	for _, s := range slices.Concat(b.Delete, b.Add) {
		switch layoutOf(s.Set).scope {
		case scopeNode:
			return false
		case scopeAddr, scopeNodePort, scopeCluster, scopeEndpoint:
		case noScope, scopeService, scopeOwn:
			if slices.ContainsFunc(s.Ops, func(op ElementOp) bool { return op.Port == nil }) {
				return false // nothing tells to which Service it belonged
			}
		}
	}
	return true
}

// first takes the elements from the batch that must come first, and the urgent Services.
func (b *Batch) first(g *groups) *Batch {
	first := &Batch{Family: b.Family, newChains: b.newChains}
	if b.CreateTable {
		first.SetChains, b.SetChains = b.SetChains, nil
	}
	urgent := func(set string, op *ElementOp) bool {
		n, ok := g.service(set, op)
		return ok && g.services[n].urgent
	}
	if g.urgent {
		first.Delete = take(b.Delete, urgent)
	}
	first.Add = take(b.Add, func(set string, op *ElementOp) bool {
		switch set {
		case Hairpin: // an endpoint could not connect to itself without
			return true
		case NodePortIPs:
			return b.CreateTable
		}
		return g.urgent && urgent(set, op)
	})
	return first
}

// byService takes the Services from the batch, some for each piece.
func (b *Batch) byService(g *groups, size int) []*Batch {
	total := 0
	for _, s := range slices.Concat(b.Delete, b.Add) {
		for i := range s.Ops {
			if k, ok := g.service(s.Set, &s.Ops[i]); ok {
				g.services[k].weight++
				total++
			}
		}
	}
	size = max(size, total/maxPieces)
	n, load := 0, 0
	for i := range g.services {
		s := &g.services[i]
		if s.weight == 0 {
			continue
		}
		if load == 0 || load+s.weight > size {
			n, load = n+1, 0
		}
		s.piece = n - 1
		load += s.weight
	}
	to := func(set string, op *ElementOp) int {
		if k, ok := g.service(set, op); ok {
			return g.services[k].piece
		}
		return n
	}
	del, add := partition(b.Delete, n+1, to), partition(b.Add, n+1, to)
	pieces := make([]*Batch, n)
	for i := range pieces {
		pieces[i] = &Batch{Family: b.Family, Delete: del[i], Add: add[i]}
	}
	b.Delete, b.Add = del[n], add[n]
	return pieces
}

// invalid takes the elements from the batch that drop packets of no connection.
func (b *Batch) invalid(size int) []*Batch {
	invalid := func(set string, _ *ElementOp) bool { return set == ServiceEndpoints }
	pieces := b.deletions(take(b.Delete, invalid), size)
	for part := range chunks(take(b.Add, invalid), size) {
		pieces = append(pieces, &Batch{Family: b.Family, Add: part})
	}
	return pieces
}

// chunks yields the operations of lists, n at most of one set at a time.
func chunks(lists []SetOps, n int) iter.Seq[[]SetOps] {
	return func(yield func([]SetOps) bool) {
		for _, s := range lists {
			for part := range slices.Chunk(s.Ops, n) {
				if !yield([]SetOps{{s.Set, part}}) {
					return
				}
			}
		}
	}
}

// take takes operations out of lists.
func take(lists []SetOps, yes func(set string, op *ElementOp) bool) []SetOps {
	var all []SetOps
	for k, s := range lists {
		var taken []ElementOp
		lists[k].Ops = remove(s.Ops, func(op *ElementOp) bool {
			if !yes(s.Set, op) {
				return false
			}
			taken = append(taken, *op)
			return true
		})
		if len(taken) > 0 {
			all = append(all, SetOps{s.Set, taken})
		}
	}
	return all
}

// partition sorts operations into n lists, in their memory.
func partition(lists []SetOps, n int, to func(set string, op *ElementOp) int) [][]SetOps {
	parts := make([][]SetOps, n)
	for _, s := range lists {
		places := make([]int, len(s.Ops)) // the list of each operation, then its place
		begin := make([]int, n+1)         // of each list's operations
		for i := range s.Ops {
			places[i] = to(s.Set, &s.Ops[i])
			begin[places[i]+1]++
		}
		for k := range n {
			begin[k+1] += begin[k]
		}
		if !slices.IsSorted(places) {
			next := slices.Clone(begin)
			for i, k := range places {
				places[i] = next[k]
				next[k]++
			}
			for i := range places {
				for at := places[i]; at != i; at = places[i] {
					s.Ops[i], s.Ops[at] = s.Ops[at], s.Ops[i]
					places[i], places[at] = places[at], at
				}
			}
		}
		for k := range n {
			if part := slices.Clip(s.Ops[begin[k]:begin[k+1]]); len(part) > 0 {
				parts[k] = append(parts[k], SetOps{s.Set, part})
			}
		}
	}
	return parts
}
