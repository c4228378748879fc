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
	counts map[flowKey]int
}

type flowKey struct {
	port     *model.ServicePort
	endpoint netip.AddrPort
}

// NewFlows begins to count the entries of service ports.
func NewFlows(ports []*model.ServicePort) *Flows {
	t := &Flows{ports: map[model.VIP]*model.ServicePort{}, counts: map[flowKey]int{}}
	for _, sp := range ports {
		for _, fe := range sp.Frontends {
			t.ports[fe.VIP] = sp
		}
	}
	return t
}

// Ports returns the protocols and ports of the addresses, each once.
func (t *Flows) Ports(f model.Family) (list []model.VIP) {
	for vip := range t.ports {
		if model.FamilyOf(vip.Addr) != f {
			continue
		}
		vip.Addr = f.Unspecified()
		if !slices.Contains(list, vip) {
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
		t.counts[flowKey{sp, endpoint}]++
	}
}

// of returns the number of entries of an endpoint; nil: they were not counted.
func (t *Flows) of(sp *model.ServicePort, endpoint netip.AddrPort) *int {
	if t == nil {
		return nil
	}
	n := t.counts[flowKey{sp, endpoint}]
	return &n
}
