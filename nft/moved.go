package nft

import "github.com/vmapd/vmapd/model"

// keepMoved takes the slots of a frontend out of what the batch deletes, for DeleteLast, if the frontend
// gets a chain that does not look at them, and the chain so far finds no endpoint without them: for example because the
// Service's traffic policy changes, and with it the map of its endpoints. A packet that has been sent to that chain
// before the commit, and looks for an endpoint behind it, finds one. Other slots can go at once: the chain
// takes slot 0 for one that is missing.
func (b *Batch) keepMoved() {
	moved := b.moved()
	if len(moved) == 0 {
		return
	}
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
	b.DeleteLast = take(b.Delete, func(set string, op *ElementOp) bool {
		if len(first[set]) == 0 {
			return false
		}
		frontend, _ := cutSlot(op.Key)
		return first[set][frontend]
	})
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
