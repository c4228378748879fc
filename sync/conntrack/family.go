package conntrack

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/vmapd/vmapd/model"
)

// family has the state of one IP family, and the list of what to ask the kernel for.
type family struct {
	applied *model.FamilySnapshot            // in the dataplane; nil: none yet
	begun   *model.FamilySnapshot            // that a round since applied has begun to apply; nil: none
	owners  map[model.VIP]*model.ServicePort // of applied, by their frontends
	asks    map[ask]due
	whole   reason
}

// ask names flows that may be stale: of UDP, and of TCP and SCTP if the service port has a grace.
type ask struct {
	dest     model.VIP      // a frontend, which has the unspecified address for a node port
	endpoint netip.AddrPort // that left it; invalid: any
}

// due is of a service port, and until when its flows may stay.
type due struct {
	from model.ServicePortName
	at   time.Time
}

// reason is why the whole table is listed. Each looks for what the ones before do, too.
type reason int

const (
	isNotListed reason = iota
	anAudit            // all that was missed
	aRepair            // what began while there were no rules
	theStart           // what is to unused cluster IPs: Services may have been deleted meanwhile
)

// nothing is the snapshot before the first.
var nothing = &model.FamilySnapshot{Settings: &model.Settings{}}

// take notes the changes since the snapshot before. Its cost depends on their number.
func (f *family) take(s *model.FamilySnapshot, now time.Time) {
	old := f.applied
	if old == nil {
		old = nothing
		f.owners, f.asks, f.whole = map[model.VIP]*model.ServicePort{}, map[ask]due{}, theStart
	}
	if !slices.Equal(old.NodePortAddrs, s.NodePortAddrs) {
		f.move(old.NodePortAddrs, s.NodePortAddrs, now)
	}
	f.applied, f.begun = s, nil
	for c := range s.ServicePortChanges(old) {
		for _, fe := range frontends(c.Old) {
			if f.owners[fe.VIP] == c.Old {
				delete(f.owners, fe.VIP)
			}
		}
		for _, fe := range frontends(c.New) {
			f.owners[fe.VIP] = c.New
		}
		before, after := forgetting(c.Old), forgetting(c.New)
		switch {
		case after == nil && before != nil && c.New != nil: // its connections may go on
			maps.DeleteFunc(f.asks, func(_ ask, d due) bool { return d.from == before.Name })
		case before != nil || after != nil && (old != nothing || after.Name.Protocol != model.UDP):
			f.leave(before, after, now)
		}
	}
}

// move notes the addresses that have become node-port addresses, and those that are none any more. What is to be asked
// about a node port, of which the Service may be gone, is asked about the latter, too.
func (f *family) move(before, after []netip.Addr, now time.Time) {
	for a, d := range maps.Clone(f.asks) {
		for _, addr := range before {
			if a.dest.Addr.IsUnspecified() && !slices.Contains(after, addr) {
				f.asks[ask{model.VIP{Addr: addr, Protocol: a.dest.Protocol, Port: a.dest.Port}, a.endpoint}] = d
			}
		}
	}
	for vip, sp := range f.owners {
		if !vip.Addr.IsUnspecified() || vip.Protocol != model.UDP {
			continue
		}
		for _, a := range slices.Concat(before, after) {
			if slices.Contains(before, a) != slices.Contains(after, a) {
				vip.Addr = a
				f.asks[ask{dest: vip}] = due{sp.Name, now}
			}
		}
	}
}

// leave notes what a service port has no more, with the endpoints that have ceased to serve. Without endpoints, packets
// are rejected; but a sender of UDP may have begun before there were rules.
func (f *family) leave(before, after *model.ServicePort, now time.Time) {
	sp := cmp.Or(after, before)
	grace, _ := sp.EndsStale()
	d, isUDP := due{sp.Name, now.Add(grace)}, sp.Name.Protocol == model.UDP
	for _, fe := range frontends(before) {
		if after == nil || isUDP && !has(after, fe.VIP) {
			f.asks[ask{dest: fe.VIP}] = d
		}
	}
	empty := before == nil || isUDP && len(before.Endpoints)+len(before.Draining) == 0
	for _, fe := range frontends(after) {
		if empty || isUDP && !has(before, fe.VIP) {
			f.asks[ask{dest: fe.VIP}] = d
		}
	}
	if before == nil || after == nil {
		return
	}
	left := func(a netip.AddrPort) {
		for _, fe := range before.Frontends {
			if !after.Serves(a) {
				f.asks[ask{fe.VIP, a}] = d
			}
		}
	}
	for _, e := range before.Endpoints {
		left(e.Addr)
	}
	for _, a := range before.Draining {
		left(a)
	}
}

// pass is the work of one pass.
type pass struct {
	whole reason
	now   time.Time
	asks  map[ask]due // that are due
}

// begin takes the work that is due; nil: there is none.
func (f *family) begin(now time.Time) *pass {
	p := &pass{f.whole, now, maps.Clone(f.asks)}
	maps.DeleteFunc(p.asks, func(_ ask, d due) bool { return now.Before(d.at) })
	if p.whole == isNotListed && len(p.asks) == 0 {
		return nil
	}
	f.whole = isNotListed
	return p
}

// end notes the result of a pass.
func (f *family) end(p *pass, err error) {
	if err != nil {
		f.whole = max(f.whole, p.whole)
		return
	}
	maps.DeleteFunc(f.asks, func(a ask, d due) bool { return p.asks[a] == d })
}

// mostListings is how many filtered listings take about as long as one of the whole table.
const mostListings = 8

// filters returns what to list.
func (p *pass) filters() []Filter {
	all, protocols := map[Filter]bool{}, map[Filter]bool{}
	for a := range p.asks {
		q := Filter{Protocol: a.dest.Protocol, Endpoint: a.endpoint}
		protocols[Filter{Protocol: q.Protocol}] = true
		if !a.endpoint.IsValid() {
			q.Dest = netip.AddrPortFrom(a.dest.Addr, a.dest.Port)
		}
		all[q] = true
	}
	switch {
	case p.whole != isNotListed:
		return []Filter{{}}
	case len(all) > mostListings:
		return slices.Collect(maps.Keys(protocols))
	}
	return slices.Collect(maps.Keys(all))
}

// next returns when the next flows must end; zero: none wait for it.
func (f *family) next() (at time.Time) {
	for _, d := range f.asks {
		if at.IsZero() || d.at.Before(at) {
			at = d.at
		}
	}
	return at
}

// stale reports whether a flow must be deleted: by the rules that are in force, and by those that a round puts
// in force, its reply source does not serve. A flow to an address that no frontend has or had stays.
func (f *family) stale(p *pass, flow *Flow) bool {
	// Other programs, like CNI plugins, use zones of their own; our rules apply to the default zone only.
	if flow.Zone || flow.Dest.Addr().IsLoopback() {
		return false
	}
	vip := model.VIP{Addr: flow.Dest.Addr(), Protocol: flow.Protocol, Port: flow.Dest.Port()}
	// An address has priority over a node port, as with packets.
	owner, isNodeAddr := f.owners[vip], slices.Contains(f.applied.NodePortAddrs, vip.Addr)
	if owner == nil && isNodeAddr {
		owner = f.owners[nodePort(vip)]
	}
	var next *model.ServicePort
	if owner != nil && f.begun != nil {
		next, _ = f.begun.ServicePort(owner.Name)
	}
	switch {
	case owner.Serves(flow.ReplySource) || next.Serves(flow.ReplySource):
		return false
	case p.whole >= aRepair && owner != nil && !flow.Translated && !flow.Answered:
		return true // an answer would be another host's with that address
	}
	d, asked := f.asked(vip, flow.ReplySource, isNodeAddr)
	owner = forgetting(owner)
	switch {
	case asked && p.now.Before(d.at):
		return false
	case owner != nil:
		return flow.Translated || flow.Protocol == model.UDP // UDP is older than the endpoints; TCP is with another host
	}
	inRange := func(c netip.Prefix) bool { return c.Contains(vip.Addr) }
	isStray := p.whole == theStart && flow.Protocol == model.UDP && slices.ContainsFunc(f.applied.ServiceCIDRs, inRange)
	return flow.Translated && (asked || isStray)
}

// asked returns what is asked about flows to a frontend, or to a node port.
func (f *family) asked(vip model.VIP, endpoint netip.AddrPort, isNodeAddr bool) (d due, ok bool) {
	for _, dest := range [...]model.VIP{vip, nodePort(vip)} {
		for _, e := range [...]netip.AddrPort{endpoint, {}} {
			if d, ok = f.asks[ask{dest, e}]; ok && (dest == vip || isNodeAddr) {
				return d, true
			}
		}
	}
	return due{}, false
}

// nodePort returns the frontend of a node port, on whatever address.
func nodePort(vip model.VIP) model.VIP {
	vip.Addr = model.FamilyOf(vip.Addr).Unspecified()
	return vip
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

// frontends returns those of a service port; none if it is nil.
func frontends(sp *model.ServicePort) []model.Frontend {
	if sp == nil {
		return nil
	}
	return sp.Frontends
}

func has(sp *model.ServicePort, vip model.VIP) bool {
	return slices.ContainsFunc(frontends(sp), func(fe model.Frontend) bool { return fe.VIP == vip })
}
