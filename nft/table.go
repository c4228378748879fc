package nft

import (
	"net/netip"

	"github.com/vmapd/vmapd/model"
)

// Table is what a table of ours holds at this moment, as read from the kernel.
type Table struct {
	Family   model.Family
	Sets     []Set
	Chains   []Chain // rules that we would not write are [Foreign]
	Elements map[string]map[string]Element
}

// Foreign stands for a rule that we would not write.
type Foreign struct{ What string }

func (s Foreign) text(model.Family) string { return "# foreign: " + s.What }

// slots implements Slots: the endpoints as the first frontend has them. Should
// others have them in another order, they are brought in line.
func (t *Table) slots(sp *model.ServicePort, l model.List) []netip.AddrPort {
	for _, fe := range sp.Frontends {
		m := mapsFor(fe.Kind)
		key := m.key(fe.VIP)
		var list []netip.AddrPort
		for i := uint32(0); ; i++ {
			e, ok := t.Elements[m.endpoints[l]][string(AppendSlot([]byte(key), i))]
			if !ok {
				break
			}
			ep, err := endpointOf(t.Family, e.Data)
			if err != nil {
				break
			}
			list = append(list, ep)
		}
		if len(list) > 0 {
			return list
		}
	}
	return nil
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
