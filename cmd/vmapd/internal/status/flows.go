package status

import (
	"net/netip"
	"slices"

	"github.com/vmapd/vmapd/model"
)

// Counts are numbers of new connections to service ports; one that is missing is not counted.
type Counts map[*model.ServicePort]uint64

// Flows counts the entries of connection tracking of one Service by endpoint.
type Flows struct {
	ports  map[model.VIP]*model.ServicePort
	counts map[*model.ServicePort]map[netip.AddrPort]int
}

// NewFlows begins to count the entries of service ports.
func NewFlows(ports []*model.ServicePort) *Flows {
	t := &Flows{map[model.VIP]*model.ServicePort{}, map[*model.ServicePort]map[netip.AddrPort]int{}}
	for _, sp := range ports {
		t.counts[sp] = map[netip.AddrPort]int{}
		for _, fe := range sp.Frontends {
			t.ports[fe.VIP] = sp
		}
	}
	return t
}

// Ports returns the protocols and ports of the addresses, each once.
func (t *Flows) Ports(f model.Family) (list []model.VIP) {
	for vip := range t.ports {
		other := model.FamilyOf(vip.Addr) != f
		vip.Addr = f.Unspecified()
		if !other && !slices.Contains(list, vip) {
			list = append(list, vip)
		}
	}
	return list
}

// Add counts an entry whose destination was translated, unless it is of another Service.
func (t *Flows) Add(to model.VIP, endpoint netip.AddrPort) {
	sp := t.ports[to]
	if sp == nil { // a node port has no address
		to.Addr = model.FamilyOf(to.Addr).Unspecified()
		sp = t.ports[to]
	}
	if sp != nil {
		t.counts[sp][endpoint]++
	}
}

// of returns the numbers of a service port's entries; nil: they were not counted.
func (t *Flows) of(sp *model.ServicePort) map[netip.AddrPort]int {
	if t == nil {
		return nil
	}
	return t.counts[sp]
}
