package conntrack

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/vmapd/vmapd/model"
)

// owners are service ports by their frontends, which have the unspecified address for node ports.
type owners map[model.VIP][]*model.ServicePort

// mostOwners bounds what rounds that fail one after the other leave of a frontend. The newest are kept.
const mostOwners = 16

// hold notes that a service port has, or had, a frontend; nil has none.
func (o owners) hold(vip model.VIP, sp *model.ServicePort) {
	list := o[vip]
	if slices.Contains(list, sp) {
		return
	}
	if len(list) == mostOwners {
		list = slices.Delete(list, 0, 1)
	}
	o[vip] = append(list, sp)
}

func (o owners) add(sp *model.ServicePort) {
	for vip := range vips(sp) {
		o.hold(vip, sp)
	}
}

// addAll adds the owners in another map.
func (o owners) addAll(more owners) {
	for vip, list := range more {
		for _, sp := range list {
			o.hold(vip, sp)
		}
	}
}

// remove forgets a service port. Another one may have its frontends by now.
func (o owners) remove(sp *model.ServicePort) {
	for vip := range vips(sp) {
		if list := slices.DeleteFunc(o[vip], func(s *model.ServicePort) bool { return s == sp }); len(list) > 0 {
			o[vip] = list
		} else {
			delete(o, vip)
		}
	}
}

// at returns the owners of a frontend. If there are none and the address is a node-port address, it returns
// those of the node port: an address has precedence, as with packets.
func (o owners) at(vip model.VIP, nodePortAddrs []netip.Addr) []*model.ServicePort {
	list := o[vip]
	if len(list) == 0 && slices.Contains(nodePortAddrs, vip.Addr) {
		list = o[nodePort(vip)]
	}
	return list
}

// nodePort returns the frontend of a node port, on whatever address.
func nodePort(vip model.VIP) model.VIP {
	vip.Addr = model.FamilyOf(vip.Addr).Unspecified()
	return vip
}

// serve reports whether one of some service ports serves an address.
func serve(ports []*model.ServicePort, a netip.AddrPort) bool {
	return slices.ContainsFunc(ports, func(sp *model.ServicePort) bool { return sp.Serves(a) })
}

// closeNodePorts notes the UDP node ports of some owners on addresses that have ceased to be node-port addresses.
func (o owners) closeNodePorts(of owners, addrs []netip.Addr) {
	for vip, list := range of {
		if vip.Protocol != model.UDP || !vip.Addr.IsUnspecified() {
			continue
		}
		for _, vip.Addr = range addrs {
			for _, sp := range list {
				o.hold(vip, sp)
			}
		}
	}
}

// forgetting returns sp if its stale flows are deleted, and nil otherwise.
func forgetting(sp *model.ServicePort) *model.ServicePort {
	if sp != nil {
		if _, ok := sp.EndsStale(); ok {
			return sp
		}
	}
	return nil
}

// vips yields the addresses of a service port's frontends; none if it is nil.
func vips(sp *model.ServicePort) iter.Seq[model.VIP] {
	return func(yield func(model.VIP) bool) {
		if sp == nil {
			return
		}
		for _, fe := range sp.Frontends {
			if !yield(fe.VIP) {
				return
			}
		}
	}
}

// serving yields the endpoints that serve, see model.ServicePort.Serves; none if sp is nil.
func serving(sp *model.ServicePort) iter.Seq[netip.AddrPort] {
	return func(yield func(netip.AddrPort) bool) {
		if sp == nil {
			return
		}
		for _, e := range sp.Endpoints {
			if !yield(e.Addr) {
				return
			}
		}
		slices.Values(sp.Draining)(yield)
	}
}
