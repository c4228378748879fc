package nft

import "github.com/vmapd/vmapd/model"

// keepMoved takes out of what the batch deletes, for DeleteLast, what a packet needs that has been sent to the
// former chain of a frontend before the commit, and goes on behind it: for example because the Service's traffic policy
// changes, and with it the map of its endpoints, and whether sources are masqueraded.
func (b *Batch) keepMoved() {
	moved := b.moved()
	if len(moved) == 0 {
		return
	}
	b.DeleteLast = b.movedSlots(moved)
	b.keepSources(moved)
}

// movedSlots takes the slots of the frontends whose new chain does not look at them, if the former one finds no endpoint
// without them. Other slots can go at once: the chain takes slot 0 for one that is missing.
func (b *Batch) movedSlots(moved map[dispatched]string) []SetOps {
	first := map[string]map[string]bool{} // the frontends whose first slot goes, by set
	note := func(lists []SetOps, goes bool) {
		for _, s := range lists {
			row := layoutOf(s.Set)
			if !row.of.hasSlots() || isOwn(s.Set) {
				continue
			}
			if first[s.Set] == nil {
				first[s.Set] = map[string]bool{}
			}
			for i := range s.Ops {
				frontend, slot := cutSlot(s.Ops[i].Key)
				if to := moved[dispatched{row.scope, frontend}]; slot == 0 && to != "" && slotsOf(to, row.list()) == 0 {
					first[s.Set][frontend] = goes
				}
			}
		}
	}
	note(b.Delete, true)
	note(b.Add, false)
	return take(b.Delete, func(set string, op *ElementOp) bool {
		if len(first[set]) == 0 {
			return false
		}
		frontend, _ := cutSlot(op.Key)
		return first[set][frontend]
	})
}

// keepSources leaves to the end the verdicts of frontends of which all sources were masqueraded. Without its verdict, a packet
// whose endpoint the former chain has chosen would reach it with the client's address, and the answer would not come back through
// this node. The connection would stay so. In return, connections that begin before the last transaction are masqueraded once
// more. A verdict that masquerades some sources only must not stay: it would keep the others from the rules for cluster IPs.
func (b *Batch) keepSources(moved map[dispatched]string) {
	type element struct{ set, key string }
	kept := map[element]bool{}
	b.DeleteLast = append(b.DeleteLast, take(b.Delete, func(set string, op *ElementOp) bool {
		if op.Verdict.Chain != masqueradeChain {
			return false
		}
		row := layoutOf(set)
		if row.role != roleSourceNAT || moved[dispatched{row.scope, op.Key}] == "" {
			return false
		}
		kept[element{set, op.Key}] = true
		return true
	})...)
	b.AddLast = take(b.Add, func(set string, op *ElementOp) bool { return kept[element{set, op.Key}] })
}

// list returns the list of endpoints that a map of endpoints has.
func (s layoutSet) list() model.TrafficPolicy { return model.TrafficPolicy(s.role - roleEndpoints) }

// dispatched is a frontend in the map of verdicts of its scope.
type dispatched struct {
	scope scope
	key   string
}

// moved returns the frontends that the batch sends from one chain to another, with the new one.
func (b *Batch) moved() map[dispatched]string {
	had, moved := map[dispatched]bool{}, map[dispatched]string{}
	each := func(lists []SetOps, do func(dispatched, string)) {
		for _, s := range lists {
			row := layoutOf(s.Set)
			if row.role != roleDispatch {
				continue
			}
			for i := range s.Ops {
				if v := s.Ops[i].Verdict; v.Kind == Goto && v.Chain != rejectChain {
					do(dispatched{row.scope, s.Ops[i].Key}, v.Chain)
				}
			}
		}
	}
	each(b.Delete, func(d dispatched, _ string) { had[d] = true })
	if len(had) == 0 {
		return nil
	}
	each(b.Add, func(d dispatched, chain string) {
		if had[d] {
			moved[d] = chain
		}
	})
	return moved
}
