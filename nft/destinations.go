package nft

import (
	"iter"
	"net/netip"

	"github.com/vmapd/vmapd/model"
)

// Destinations returns the frontends of a protocol in the table, with their endpoints. Those of a node port have its
// addresses. Connections that began under this table went there. The zero AddrPort stands for others, which the table
// does not tell: with session affinity, a client may be remembered with an endpoint that is gone.
func (t *Table) Destinations(p model.Protocol) map[model.VIP][]netip.AddrPort {
	found := map[model.VIP][]netip.AddrPort{}
	for vip := range t.frontends(withAddress, p) {
		found[vip] = nil // also if it has no endpoints: a node port of that number has no say
	}
	for vip, e := range t.translations(withAddress, p) {
		found[vip] = append(found[vip], e)
	}
	nodePorts := map[model.VIP][]netip.AddrPort{}
	for vip, e := range t.translations(ofNodePorts, p) {
		nodePorts[vip] = append(nodePorts[vip], e)
	}
	for a := range t.Elements[NodePortIPs].All() {
		for vip, endpoints := range nodePorts {
			vip.Addr = decodeAddr(a.Key)
			if _, ok := found[vip]; !ok {
				found[vip] = endpoints
			}
		}
	}
	return found
}

// frontends yields the frontends in a verdict map.
func (t *Table) frontends(s *Frontends, p model.Protocol) iter.Seq[model.VIP] {
	return func(yield func(model.VIP) bool) {
		for e := range t.Elements[s.Dispatch].All() {
			if vip, ok := s.vip(t.Family, e.Key); ok && vip.Protocol == p && !yield(vip) {
				return
			}
		}
	}
}

// translations yields the endpoints in the slots of frontends. One may come more than once.
func (t *Table) translations(s *Frontends, p model.Protocol) iter.Seq2[model.VIP, netip.AddrPort] {
	return func(yield func(model.VIP, netip.AddrPort) bool) {
		for e := range t.Elements[s.Affinity].All() {
			if vip, ok := s.vip(t.Family, e.Key); ok && vip.Protocol == p && !yield(vip, netip.AddrPort{}) {
				return
			}
		}
		for _, l := range model.TrafficPolicies {
			for e := range t.Elements[s.Endpoints[l]].All() {
				vip, ok := s.vip(t.Family, e.Key)
				if !ok || vip.Protocol != p {
					continue
				}
				if endpoint, err := endpointOf(t.Family, e.Data); err == nil && !yield(vip, endpoint) {
					return
				}
			}
		}
	}
}
