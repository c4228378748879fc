package nft

import (
	"iter"
	"net/netip"

	"github.com/vmapd/vmapd/model"
)

// Table is the content of our table, as read from the kernel.
type Table struct {
	Family     model.Family
	Sets       []Set
	Flowtables []Flowtable          // names alone
	Chains     []Chain              // [Foreign] stands for rules that Compile never makes
	Elements   map[string]*Elements // by set
}

// Foreign stands for a rule that Compile never makes.
type Foreign struct{ What string }

func (s Foreign) text(model.Family) string { return "# foreign: " + s.What }

// slots implements Slots, by the slots of the first frontend that has some. If other frontends have
// their endpoints in another order, the next batch changes them.
func (t *Table) slots(sp *model.ServicePort, l model.TrafficPolicy) []netip.AddrPort {
	for _, fe := range sp.Frontends {
		s := scopeOf(fe.Kind)
		if list := t.slotsIn(s.set(endpointsRole(l)), []byte(s.key(fe.VIP)), sp.Count(l)); len(list) > 0 {
			return list
		}
	}
	return nil
}

// slotsIn returns the endpoints of a map in slots from 0 on, with keys that begin with prefix.
// There may be about n.
func (t *Table) slotsIn(set string, prefix []byte, n int) []netip.AddrPort {
	have := t.Elements[set]
	var list []netip.AddrPort
	for i := uint32(0); ; i++ {
		e, ok := have.Get(string(AppendSlot(prefix, i)))
		if !ok {
			return list
		}
		ep, err := endpointOf(t.Family, e.Data)
		if err != nil {
			return list
		}
		if list == nil {
			list = make([]netip.AddrPort, 0, n)
		}
		list = append(list, ep)
	}
}

// EndpointSlots yields the key of each frontend that has slots in a map of endpoints, and the
// greatest number of slots that it can have, by the chain in its verdict. Callers pass every
// set they read from the kernel except the endpoints map. For other sets it yields nothing.
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
				most = slotsOf(e.Verdict.Chain, row.list())
				slots[e.Verdict.Chain] = most
			}
			if most > 0 && !yield(e.Key, most) {
				return
			}
		}
	}
}

// list returns the list of endpoints that a map of endpoints has.
func (s layoutSet) list() model.TrafficPolicy { return model.TrafficPolicy(s.role - roleEndpoints) }

// slotsOf returns the greatest number of slots of a list that a chain chooses from.
func slotsOf(chain string, l model.TrafficPolicy) int {
	var all chosen
	all.addName(chain)
	for c := range all.choices {
		if c.list == l {
			return c.of.hi
		}
	}
	return 0
}

// KeepUnused avoids a write that only deletes unused chains: if the only difference between
// table and r is chains for numbers of endpoints that no service port has now, it returns the
// ruleset with them, and true. Otherwise the batch deletes them, too.
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
	rest := newBatch(r.Family)
	rest.diffChains(t.Chains, kept.AllChains())
	return &kept, rest.Empty()
}
