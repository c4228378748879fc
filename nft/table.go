package nft

import (
	"net/netip"

	"github.com/vmapd/vmapd/model"
)

// Table is the content of our table, as read from the kernel.
type Table struct {
	Family     model.Family
	Sets       []Set
	Flowtables []Flowtable         // names alone
	Chains     []Chain             // [Foreign] stands for rules that Compile never makes
	Elements   map[string]Elements // by set
}

// Foreign stands for a rule that Compile never makes.
type Foreign struct{ What string }

func (s Foreign) text(model.Family) string { return "# foreign: " + s.What }

// Slots returns the endpoints of a map in slots from 0 on, with keys that begin with that of a frontend. There may be
// about n.
func (t *Table) Slots(set, frontend string, n int) []netip.AddrPort {
	have := t.Elements[set]
	var list []netip.AddrPort
	for i := uint32(0); ; i++ {
		e, ok := have[string(AppendSlot([]byte(frontend), i))]
		if !ok {
			return list
		}
		ep, ok := Endpoint(e.Data)
		if !ok {
			return list
		}
		if list == nil {
			list = make([]netip.AddrPort, 0, n)
		}
		list = append(list, ep)
	}
}
