package nft

import (
	"iter"

	"github.com/vmapd/vmapd/model"
)

// postponed are the endpoints of a new table that no list has: they are made for one piece of the
// batch after the other. Those of urgent Services are not among them.
type postponed struct {
	ruleset *Ruleset
	urgent  map[model.NamespacedName]bool
	made    int // elements, so far
}

func (r *Ruleset) postpone() *postponed {
	p := &postponed{ruleset: r, urgent: map[model.NamespacedName]bool{}}
	for sp := range r.snapshot.ServicePorts() {
		if isUrgent(sp) {
			p.urgent[sp.Name.NamespacedName] = true
		}
	}
	return p
}

// has reports whether the slots of a service port are postponed.
func (p *postponed) has(sp *model.ServicePort) bool {
	return !p.urgent[sp.Name.NamespacedName]
}

// others are all elements that are not postponed.
func (p *postponed) others() elements {
	list := elements{}
	p.ruleset.each(list.add, func(sp *model.ServicePort) *slotDelta {
		if p.has(sp) {
			return &slotDelta{other: sp} // as if its slots were there already
		}
		return nil
	})
	return list
}

// pieces yields batches of size elements with what is postponed.
func (p *postponed) pieces(size int) iter.Seq[*Batch] {
	return func(yield func(*Batch) bool) {
		if p == nil {
			return
		}
		list, n := elements{}, 0
		next := func() bool {
			b := &Batch{Family: p.ruleset.Family}
			b.diffElements(nil, list)
			p.made += n
			n = 0
			list = elements{}
			for _, s := range b.Add { // the next piece is similar
				list[s.Set] = [][]ElementOp{make([]ElementOp, 0, len(s.Ops))}
			}
			return yield(b)
		}
		slots := map[string]bool{} // by set
		for sp := range p.ruleset.snapshot.ServicePorts() {
			if !p.has(sp) {
				continue
			}
			stopped := false
			p.ruleset.portElements(sp, nil, func(set string, e Element) {
				is, known := slots[set]
				if !known {
					is = DeclarationOf(set).hasSlots()
					slots[set] = is
				}
				if !is || stopped {
					return
				}
				list.add(set, ElementOp{e, sp})
				if n++; n == size {
					stopped = !next()
				}
			})
			if stopped {
				return
			}
		}
		if n > 0 {
			next()
		}
	}
}
