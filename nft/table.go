package nft

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

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
func (t *Table) slots(sp *model.ServicePort) []netip.AddrPort {
	for _, fe := range sp.Frontends {
		m := mapsFor(fe.Kind)
		key := m.key(fe.VIP)
		var list []netip.AddrPort
		for i := uint32(0); ; i++ {
			e, ok := t.Elements[m.endpoints][string(AppendSlot([]byte(key), i))]
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

// set returns the declaration of a set.
func (t *Table) set(name string) (Set, bool) {
	for _, s := range t.Sets {
		if s.Name == name {
			return s, true
		}
	}
	return Set{}, false
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
	kept.Chains = layoutChains(r.snapshot.Settings, kept.chosen)
	rest := &Batch{Family: r.Family, newChains: map[string]bool{}}
	rest.diffChains(t.Chains, kept.Chains)
	return &kept, rest.Empty()
}

// addName notes the number of endpoints that a chain's name says.
func (c *chosen) addName(name string) bool {
	for list, nameOf := range map[*[]int]func(int) string{&c.addr: endpointsChainName, &c.node: nodePortEndpointsChainName} {
		n, err := strconv.Atoi(name[strings.LastIndexByte(name, '-')+1:])
		if err != nil || n < 1 || nameOf(n) != name {
			continue
		}
		i, found := slices.BinarySearch(*list, n)
		if !found {
			*list = slices.Insert(slices.Clone(*list), i, n)
		}
		return true
	}
	return false
}
