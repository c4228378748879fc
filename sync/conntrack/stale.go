package conntrack

import (
	"net/netip"
	"slices"
	"time"

	"github.com/vmapd/vmapd/model"
)

// pass selects stale flows, by what the family has when it is asked: rounds go on while the kernel lists flows.
type pass struct {
	*family
	now time.Time
	work
	all owners // of all frontends, for early connections; nil without these
}

// stale reports whether a flow must be deleted: by the rules that are in force, and by those that a round puts
// in force, its reply source does not serve. A flow to an address that no frontend has or had stays.
func (p *pass) stale(f *flow) bool {
	// Other programs, like CNI plugins, use zones of their own; our rules apply to the
	// default zone only.
	if f.zone || f.dest.Addr().IsLoopback() {
		return false
	}
	vip := model.VIP{Addr: f.dest.Addr(), Protocol: f.protocol, Port: f.dest.Port()}
	owner := p.frontends.at(vip, p.applied.NodePortAddrs)
	switch {
	case serve(owner, f.replySource), serve(p.coming.at(vip, p.comingAddrs), f.replySource):
		return false
	case p.isEarly(f, vip):
		return true
	case len(owner) > 0 && p.refused[owner[0].Name]:
		return false // its old rules are in force
	case f.protocol != model.UDP:
		return p.streams && p.overstays(f, vip, owner)
	case !p.udp:
		return false
	case len(owner) > 0:
		return true // also untranslated: it is older than the endpoints
	}
	return f.translated && (p.had(vip, f.replySource) || p.isStray(f))
}

// isEarly reports whether a connection can have begun while there were no rules. One that is answered has
// reached a host with that address.
func (p *pass) isEarly(f *flow, vip model.VIP) bool {
	if f.translated || f.answered {
		return false
	}
	owner := p.all.at(vip, p.applied.NodePortAddrs)
	return len(owner) > 0 && !serve(owner, f.replySource)
}

// overstays reports whether the time of a connection of TCP or SCTP is over. An untranslated one is with
// another host.
func (p *pass) overstays(f *flow, vip model.VIP, owner []*model.ServicePort) bool {
	if !f.translated {
		return false
	}
	d, ok := p.departed(vip, f.replySource)
	if !ok && len(owner) > 0 {
		if d, ok = p.departed(vip, netip.AddrPort{}); !ok {
			return true
		}
	}
	return ok && !p.now.Before(d.until) && !p.refused[d.from]
}

// had reports whether a flow to a frontend that is gone was to one of its endpoints. Another program may
// translate what goes to an address that has ceased to be a node-port address, so that only known endpoints
// are ours; with session affinity, a client may be remembered with one that is gone.
func (p *pass) had(vip model.VIP, endpoint netip.AddrPort) bool {
	for _, key := range p.keys(vip) {
		own := func(fe model.Frontend) bool { return fe.VIP == key }
		for _, sp := range slices.Concat(p.past[key], p.older[key]) {
			all := sp.Affinity > 0 || slices.ContainsFunc(sp.Frontends, own)
			if !p.refused[sp.Name] && (all || sp.Serves(endpoint)) {
				return true
			}
		}
	}
	return false
}

// isStray reports whether a translated flow is to an address that only Services have.
func (p *pass) isStray(f *flow) bool {
	contains := func(c netip.Prefix) bool { return c.Contains(f.dest.Addr()) }
	return p.strays && slices.ContainsFunc(p.applied.ServiceCIDRs, contains)
}
