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
	owners  map[model.VIP]*model.ServicePort // of applied, by their frontends
	// asks select flows that may be stale, of UDP, and of TCP and SCTP if the service port has a grace: to a frontend, or
	// from an endpoint that left. The values are the times until which the flows may stay.
	asks       map[Filter]time.Time
	hosts      []netip.Addr // with node ports, now or since the whole table was listed
	listed     time.Time    // when the whole table was; zero: it must be
	listedOnce bool         // before, Services may have been deleted of which nothing is known
}

// auditInterval is the time between listings of the whole table, in case a flow was missed.
const auditInterval = time.Hour

// nothing is the snapshot before the first, and none a service port of no flows.
var (
	nothing = &model.FamilySnapshot{Settings: &model.Settings{}}
	none    = new(model.ServicePort) //nolint:gochecknoglobals // it is never written
)

// take notes the changes since the snapshot before; repair: there were no rules meanwhile. Its cost depends on their
// number.
func (f *family) take(s *model.FamilySnapshot, now time.Time, repair bool) {
	old := f.applied
	if old == nil {
		old, f.owners, f.asks = nothing, map[model.VIP]*model.ServicePort{}, map[Filter]time.Time{}
	}
	if !slices.Equal(old.NodePortAddrs, s.NodePortAddrs) {
		f.hosts, repair = slices.Concat(f.hosts, s.NodePortAddrs), true
	}
	if repair {
		f.listed = time.Time{}
	}
	f.applied = s
	for c := range s.ServicePortChanges(old) {
		before, after := cmp.Or(c.Old, none), cmp.Or(c.New, none)
		for _, fe := range before.Frontends {
			if f.owners[fe.VIP] == before {
				delete(f.owners, fe.VIP)
			}
		}
		for _, fe := range after.Frontends {
			f.owners[fe.VIP] = after
		}
		f.note(forgetting(before), forgetting(after), now)
	}
}

// note notes what has changed about a service port: its frontends, and the endpoints that have ceased to serve. Without
// endpoints, packets are rejected; but a sender of UDP may have begun before there were rules.
func (f *family) note(before, after *model.ServicePort, now time.Time) {
	sp := after
	if sp == none {
		sp = before
	}
	grace, _ := sp.EndsStale()
	until, isUDP := now.Add(grace), sp.Name.Protocol == model.UDP
	lack := func(other *model.ServicePort, of []model.Frontend) {
		all := other == none || isUDP && len(other.Endpoints)+len(other.Draining) == 0
		for _, fe := range of {
			if all || isUDP && !slices.ContainsFunc(other.Frontends, func(o model.Frontend) bool { return o.VIP == fe.VIP }) {
				f.asks[to(fe.VIP)] = until
			}
		}
	}
	lack(after, before.Frontends)
	lack(before, after.Frontends)
	if after == none {
		return
	}
	left := func(a netip.AddrPort) {
		if !after.Serves(a) {
			f.asks[Filter{Protocol: sp.Name.Protocol, Endpoint: a}] = until
		}
	}
	for _, e := range before.Endpoints {
		left(e.Addr)
	}
	for _, a := range before.Draining {
		left(a)
	}
}

// to selects the flows to a frontend. It has the unspecified address for a node port.
func to(vip model.VIP) Filter {
	return Filter{Protocol: vip.Protocol, Dest: netip.AddrPortFrom(vip.Addr, vip.Port)}
}

// pass is the work of one pass.
type pass struct {
	whole bool // it lists the whole table
	now   time.Time
	asks  map[Filter]time.Time // that are due
}

// begin takes the work that is due; nil: there is none.
func (f *family) begin(now time.Time) *pass {
	p := &pass{f.applied != nil && now.Sub(f.listed) >= auditInterval, now, maps.Clone(f.asks)}
	maps.DeleteFunc(p.asks, func(_ Filter, at time.Time) bool { return now.Before(at) })
	switch {
	case p.whole:
		f.listed = now // unless something asks for another one meanwhile
	case len(p.asks) == 0:
		return nil
	}
	return p
}

// end notes the result of a pass.
func (f *family) end(p *pass, err error) {
	switch {
	case err != nil && p.whole:
		f.listed = time.Time{}
	case err == nil:
		maps.DeleteFunc(f.asks, func(q Filter, at time.Time) bool { return p.asks[q] == at })
		f.listedOnce = true // the first pass does
		// What is asked may be about a former address.
		if p.whole && f.listed == p.now && len(f.asks) == 0 {
			f.hosts = f.applied.NodePortAddrs
		}
	}
}

// mostListings is how many filtered listings take about as long as one of the whole table.
const mostListings = 8

// filters returns what to list.
func (p *pass) filters() []Filter {
	if p.whole {
		return []Filter{{}}
	}
	protocols := map[Filter]time.Time{}
	for q := range p.asks {
		protocols[Filter{Protocol: q.Protocol}] = p.now
	}
	if len(p.asks) > mostListings {
		return slices.Collect(maps.Keys(protocols))
	}
	return slices.Collect(maps.Keys(p.asks))
}

// next returns the time until there is work again without a round.
func (f *family) next(now time.Time) time.Duration {
	if f.applied == nil {
		return auditInterval
	}
	at := f.listed.Add(auditInterval)
	for _, other := range f.asks {
		if other.Before(at) {
			at = other
		}
	}
	return max(0, at.Sub(now))
}

// stale reports whether a flow must be deleted: by the rules that are in force, its reply source does not serve.
// A flow to an address that no frontend has or had stays.
func (f *family) stale(p *pass, flow *Flow) bool {
	// Other programs, like CNI plugins, use zones of their own; our rules apply to the default zone only.
	if flow.Zone || flow.Dest.Addr().IsLoopback() {
		return false
	}
	vip := model.VIP{Addr: flow.Dest.Addr(), Protocol: flow.Protocol, Port: flow.Dest.Port()}
	nodePort := vip
	nodePort.Addr = model.FamilyOf(vip.Addr).Unspecified()
	isHost := slices.Contains(f.hosts, vip.Addr)
	// An address has priority over a node port, as with packets.
	owner := f.owners[vip]
	if owner == nil && slices.Contains(f.applied.NodePortAddrs, vip.Addr) {
		owner = f.owners[nodePort]
	}
	switch {
	case owner.Serves(flow.ReplySource):
		return false
	case p.whole && owner != nil && !flow.Translated && !flow.Answered:
		return true // it began while there were no rules; an answer would be another host's with that address
	}
	until, asked := f.asks[to(vip)]
	if !asked && isHost {
		until, asked = f.asks[to(nodePort)]
	}
	if !asked { // of a frontend that is gone, nothing asks again once the time of its endpoint is over
		until = f.asks[Filter{Protocol: vip.Protocol, Endpoint: flow.ReplySource}]
	}
	switch {
	case p.now.Before(until), owner != nil && forgetting(owner) == none: // its connections may go on
		return false
	case owner != nil:
		return flow.Translated || flow.Protocol == model.UDP // UDP is older than the endpoints; TCP is with another host
	}
	inRange := func(c netip.Prefix) bool { return c.Contains(vip.Addr) }
	isFormer := isHost && f.owners[nodePort] != nil
	isStray := !f.listedOnce && slices.ContainsFunc(f.applied.ServiceCIDRs, inRange)
	return flow.Translated && (asked || flow.Protocol == model.UDP && (isFormer || isStray))
}

// forgetting returns sp if its stale flows are deleted.
func forgetting(sp *model.ServicePort) *model.ServicePort {
	if _, ok := sp.EndsStale(); ok {
		return sp
	}
	return none
}
