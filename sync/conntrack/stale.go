package conntrack

import (
	"iter"
	"net/netip"
	"slices"
	"time"

	"github.com/vmapd/vmapd/model"
)

// owners are the service ports of a snapshot by their frontends, which have the unspecified address for node ports.
type owners struct {
	of    *model.FamilySnapshot // nil: there are none
	ports map[model.VIP]*model.ServicePort
}

// ownersOf returns all service ports, or those with stale flows to delete.
func ownersOf(s *model.FamilySnapshot, all bool) owners {
	o := owners{s, map[model.VIP]*model.ServicePort{}}
	if s == nil {
		return o
	}
	for sp := range s.ServicePorts() {
		if !all && forgetting(sp) == nil {
			continue
		}
		for vip := range vips(sp) {
			o.ports[vip] = sp
		}
	}
	return o
}

// at returns the owner of a frontend, or of the node port: an address has precedence, as with packets.
func (o owners) at(vip model.VIP) *model.ServicePort {
	sp := o.ports[vip]
	if sp == nil && o.of != nil && slices.Contains(o.of.NodePortAddrs, vip.Addr) {
		sp = o.ports[nodePort(vip)]
	}
	return sp
}

// nodePort returns the frontend of a node port, on whatever address.
func nodePort(vip model.VIP) model.VIP {
	vip.Addr = model.FamilyOf(vip.Addr).Unspecified()
	return vip
}

// pass selects stale flows, by what the family has when it is asked: rounds go on while the kernel lists flows.
type pass struct {
	*family
	now time.Time
	work
	former      former // what other service ports had when the pass began
	have, comes owners // of the snapshots that are applied, and begun
}

// follow takes the service ports of snapshots that a round has applied or begun meanwhile. It takes 10 ms where there
// are tens of thousands: no round waits for it.
func (p *pass) follow(applied, begun *model.FamilySnapshot) {
	if p.have.of != applied {
		p.have = ownersOf(applied, p.early)
	}
	if p.comes.of != begun {
		p.comes = ownersOf(begun, false)
	}
}

// isCurrent reports whether p has followed the last round.
func (p *pass) isCurrent() bool { return p.have.of == p.applied && p.comes.of == p.begun }

// stale reports whether a flow must be deleted: by the rules that are in force, and by those that a round puts
// in force, its reply source does not serve. A flow to an address that no frontend has or had stays.
func (p *pass) stale(f *flow) bool {
	// Other programs, like CNI plugins, use zones of their own; our rules apply to the default zone only.
	if f.zone || f.dest.Addr().IsLoopback() {
		return false
	}
	vip := model.VIP{Addr: f.dest.Addr(), Protocol: f.protocol, Port: f.dest.Port()}
	owner := p.have.at(vip)
	switch {
	case owner.Serves(f.replySource), p.comes.at(vip).Serves(f.replySource):
		return false
	case p.early && owner != nil && !f.translated && !f.answered:
		return true // an answer would be another host's with that address
	}
	owner = forgetting(owner)
	switch {
	case owner != nil && p.refused[owner.Name]:
		return false // its old rules are in force
	case f.protocol != model.UDP:
		return p.streams && p.overstays(f, vip, owner)
	case !p.udp:
		return false
	case owner != nil:
		return true // also untranslated: it is older than the endpoints
	}
	name, ok := p.had(vip)
	return f.translated && (ok && !p.refused[name] || p.isStray(f))
}

// overstays reports whether the time of a connection of TCP or SCTP is over. An untranslated one is with another host.
func (p *pass) overstays(f *flow, vip model.VIP, owner *model.ServicePort) bool {
	if !f.translated {
		return false
	}
	d, ok := p.departed(vip, f.replySource)
	if !ok && owner != nil {
		if d, ok = p.departed(vip, netip.AddrPort{}); !ok {
			return true
		}
	}
	return ok && !p.now.Before(d.until) && !p.refused[d.from]
}

// had returns the service port that had a frontend before the pass began, or while it goes on. Its node port may still
// be there, and the address is no node-port address any more.
func (p *pass) had(vip model.VIP) (name model.ServicePortName, ok bool) {
	earlier, later := p.former, p.family.former
	at := func(vip model.VIP) (name model.ServicePortName, ok bool) {
		if name, ok = later.frontends[vip]; !ok {
			name, ok = earlier.frontends[vip]
		}
		return name, ok
	}
	if name, ok = at(vip); ok {
		return name, ok
	}
	if !earlier.addrs[vip.Addr] && !later.addrs[vip.Addr] && !slices.Contains(p.applied.NodePortAddrs, vip.Addr) {
		return name, false
	}
	if sp := p.have.ports[nodePort(vip)]; sp != nil {
		return sp.Name, true
	}
	return at(nodePort(vip))
}

// isStray reports whether a translated flow is to an address that only Services have.
func (p *pass) isStray(f *flow) bool {
	contains := func(c netip.Prefix) bool { return c.Contains(f.dest.Addr()) }
	return p.strays && slices.ContainsFunc(p.applied.ServiceCIDRs, contains)
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
