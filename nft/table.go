package nft

import (
	"iter"
	"net/netip"

	"github.com/vmapd/vmapd/model"
)

// Table is what a table of ours holds at this moment, as read from the kernel.
type Table struct {
	Family   model.Family
	Sets     []Set
	Chains   []Chain              // rules that we would not write are [Foreign]
	Elements map[string]*Elements // by set
}

// Foreign stands for a rule that we would not write.
type Foreign struct{ What string }

func (s Foreign) text(model.Family) string { return "# foreign: " + s.What }

// slots implements Slots: the endpoints as the first frontend has them. Should
// others have them in another order, they are brought in line.
func (t *Table) slots(sp *model.ServicePort, l model.TrafficPolicy) []netip.AddrPort {
	for _, fe := range sp.Frontends {
		s := scopeOf(fe.Kind)
		have, key := t.Elements[s.set(endpointsRole(l))], []byte(s.key(fe.VIP))
		var list []netip.AddrPort
		for i := uint32(0); ; i++ {
			e, ok := have.Get(string(AppendSlot(key, i)))
			if !ok {
				break
			}
			ep, err := endpointOf(t.Family, e.Data)
			if err != nil {
				break
			}
			if list == nil {
				list = make([]netip.AddrPort, 0, sp.Count(l))
			}
			list = append(list, ep)
		}
		if len(list) > 0 {
			return list
		}
	}
	return nil
}

// EndpointSlots yields the frontends that have slots in a map of endpoints, by their key in
// the others, with how many slots they have at most: the chain that a frontend goes to says
// it. It is for who has read all sets but that map, and is nothing for other sets.
func (t *Table) EndpointSlots(set string) iter.Seq2[string, int] {
	return func(yield func(string, int) bool) {
		row := layoutOf(set)
		if !row.of.hasSlots() {
			return
		}
		slots := map[string]int{} // by chain
		for e := range t.Elements[row.scope.set(roleDispatch)].All() {
			most, ok := slots[e.Verdict.Chain]
			if !ok {
				most = slotsOf(e.Verdict.Chain, model.TrafficPolicy(row.role-roleEndpoints))
				slots[e.Verdict.Chain] = most
			}
			if most > 0 && !yield(e.Key, most) {
				return
			}
		}
	}
}

// slotsOf returns from how many slots of a list, at most, the chain of that name chooses.
func slotsOf(chain string, l model.TrafficPolicy) int {
	var all chosen
	all.addName(chain)
	for _, c := range all.choices {
		if c.list == l {
			return c.of.hi
		}
	}
	return 0
}

// KeepUnused avoids a write for tidiness alone: if the only difference between table
// and r is chains that choose among a number of endpoints no service port has now, it
// returns the ruleset with them, and true. Otherwise they go along with the batch.
func (r *Ruleset) KeepUnused(t *Table, b *Batch) (*Ruleset, bool) {
	if b.Len() != len(b.DeleteChains) || b.Len() == 0 {
		return r, false
	}
	kept := *r
	for _, name := range b.DeleteChains {
		if !kept.chosen.addName(name) {
			return r, false
		}
	}
	kept.Chains = r.Options.layoutChains(r.snapshot.Settings, kept.chosen)
	rest := &Batch{Family: r.Family, newChains: map[string]bool{}}
	rest.diffChains(t.Chains, kept.AllChains())
	return &kept, rest.Empty()
}
