package conntrack

import (
	"net/netip"
	"slices"
	"time"

	"github.com/vmapd/vmapd/model"
)

// rules say which flows must go. They are complete in what they are about: a flow that no
// rule is about stays.
type rules struct {
	now time.Time
	// frontends are those to look at; a node port's address is the unspecified one.
	frontends map[model.VIP]rule
	// nodePortAddrs are where node ports answer, sorted.
	nodePortAddrs []netip.Addr
	// strays are ranges where translated UDP flows to addresses that are no frontend go, too.
	strays []netip.Prefix
}

// rule says which flows to one frontend stay.
type rule struct {
	// gone: it is nobody's any more, or of no business of this package.
	gone bool
	// port has the endpoints that still serve; nil: there are none.
	port *model.ServicePort
	// until is for TCP and SCTP: how long connections to endpoints that left may go on. The
	// zero AddrPort stands for all that are not named. Where it is missing, too, their time
	// is over.
	until map[netip.AddrPort]time.Time
}

// stale reports whether a flow must go.
func (r *rules) stale(f *flow) bool {
	// Others, a CNI plugin for one, track in zones of their own; we have rules in the default
	// one only.
	if f.zone || f.dest.Addr().IsLoopback() {
		return false
	}
	vip := model.VIP{Addr: f.dest.Addr(), Protocol: f.protocol, Port: f.dest.Port()}
	if rule, ok := r.frontends[vip]; ok {
		return rule.stale(f, r.now)
	}
	if contains(r.nodePortAddrs, vip.Addr) {
		vip.Addr = model.FamilyOf(vip.Addr).Unspecified()
		if rule, ok := r.frontends[vip]; ok {
			return rule.stale(f, r.now)
		}
	}
	return f.protocol == model.UDP && f.translated &&
		slices.ContainsFunc(r.strays, func(p netip.Prefix) bool { return p.Contains(f.dest.Addr()) })
}

func (r rule) stale(f *flow, now time.Time) bool {
	if r.port != nil && serves(r.port, f.replySource) {
		return false
	}
	// What is not translated is a sender's who began before there were endpoints. But where
	// there is no frontend any more, the address may be somebody else's, to whom the flow
	// really goes; and over TCP such a connection is with somebody else, too.
	if !f.translated && (r.gone || f.protocol != model.UDP) {
		return false
	}
	until, ok := r.until[f.replySource]
	switch {
	case ok:
	case r.gone && f.protocol != model.UDP:
		return false // by now, it may be a service port's whose connections are not ended
	default:
		until = r.until[netip.AddrPort{}]
	}
	return !now.Before(until)
}

// idle reports whether a rule can't find anything yet.
func (r rule) idle(now time.Time) bool {
	return !r.gone && now.Before(r.until[netip.AddrPort{}])
}

// serves reports whether an address answers for a service port: one that gets new
// connections, or one that may keep those it has.
func serves(sp *model.ServicePort, a netip.AddrPort) bool {
	compare := func(e model.Endpoint, a netip.AddrPort) int { return e.Addr.Compare(a) }
	if _, ok := slices.BinarySearchFunc(sp.Endpoints, a, compare); ok {
		return true
	}
	_, ok := slices.BinarySearchFunc(sp.Draining, a, netip.AddrPort.Compare)
	return ok
}

func contains(sorted []netip.Addr, a netip.Addr) bool {
	_, ok := slices.BinarySearchFunc(sorted, a, netip.Addr.Compare)
	return ok
}
