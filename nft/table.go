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
func (t *Table) slots(sp *model.ServicePort, l model.List) []netip.AddrPort {
	for _, fe := range sp.Frontends {
		m := mapsFor(fe.Kind)
		have, key := t.Elements[m.endpoints[l]], []byte(m.key(fe.VIP))
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

// EndpointKeys returns how many keys a map of endpoints has, and yields them, if the table
// agrees with itself: the chain that a frontend goes to says from how many slots it chooses.
// It is for who has read all sets but that map, and is nothing for other sets. What is yielded
// is overwritten by the next.
func (t *Table) EndpointKeys(set string) (int, iter.Seq[[]byte]) {
	var frontends *Elements
	var list model.List
	for _, m := range [...]*frontendMaps{&addrMaps, &nodePortMaps} {
		for _, l := range model.Lists {
			if m.endpoints[l] == set {
				frontends, list = t.Elements[m.dispatch], l
			}
		}
	}
	slots := map[string]int{} // by chain
	n := 0
	for e := range frontends.All() {
		chain := e.Verdict.Chain
		if _, ok := slots[chain]; !ok {
			slots[chain] = slotsOf(chain, list)
		}
		n += slots[chain]
	}
	return n, func(yield func([]byte) bool) {
		var key []byte
		for e := range frontends.All() {
			for i := range slots[e.Verdict.Chain] {
				if key = AppendSlot(append(key[:0], e.Key...), uint32(i)); !yield(key) {
					return
				}
			}
		}
	}
}

// slotsOf returns how many slots of a list the chain of that name chooses from.
func slotsOf(chain string, l model.List) int {
	var all chosen
	all.addName(chain)
	for _, c := range all.choices {
		if c.list == l {
			return c.n
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
