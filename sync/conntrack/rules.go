package conntrack

import (
	"net/netip"
	"slices"
	"time"

	"github.com/vmapd/vmapd/model"
)

// rules select stale flows. A flow to an address without a rule stays.
type rules struct {
	now time.Time
	// frontends have the unspecified address for node ports.
	frontends map[model.VIP]rule
	// nodeAddrs are the node's own addresses, and nodePortAddrs the node-port addresses. Both
	// are sorted.
	nodeAddrs, nodePortAddrs []netip.Addr
	// expected are late answers that may come, see lateAnswers; nil: none.
	expected map[answer]struct{}
	// reversed: also flows that a frontend began are looked for, see answers. They come with a new
	// frontend and after deletions only, so most passes need not.
	reversed bool
	// ended are the late answers that the pass makes possible. The pass fills it.
	ended []answer
	// early are the frontends to which a connection without an answer can have begun while there were no
	// rules, with their service ports.
	early map[model.VIP]*model.ServicePort
	// follows reports whether a stale flow follows rules that are newer; nil: there are none. spared: it did so.
	follows func(*flow) bool
	spared  bool
	// strays are ranges in which translated UDP flows to other addresses are stale, too.
	strays []netip.Prefix
}

// rule selects the stale flows to one frontend.
type rule struct {
	// gone: no service port whose stale flows are deleted has the frontend any more.
	gone bool
	// port has the endpoints that serve; nil: there are none.
	port *model.ServicePort
	// until has, for TCP and SCTP, the time at which connections to former endpoints become
	// stale. The zero AddrPort stands for endpoints without an entry. Without that entry,
	// their connections are stale.
	until map[netip.AddrPort]time.Time
	// endpoints, unless nil, are the only ones whose flows can be stale when the frontend is
	// gone, see holder.
	endpoints map[netip.AddrPort]struct{}
}

// stale reports whether a flow must be deleted.
func (r *rules) stale(f *flow) bool {
	// Other programs, like CNI plugins, use zones of their own; our rules apply to the
	// default zone only.
	if f.zone || f.dest.Addr().IsLoopback() {
		return false
	}
	vip := model.VIP{Addr: f.dest.Addr(), Protocol: f.protocol, Port: f.dest.Port()}
	if sp, ok := lookup(r.early, r.nodePortAddrs, vip); ok && !f.translated && !f.answered && !sp.Serves(f.replySource) {
		return true
	}
	if rule, ok := lookup(r.frontends, r.nodePortAddrs, vip); ok {
		return rule.stale(f, r.now)
	}
	if f.protocol != model.UDP {
		return false
	}
	if f.translated {
		return slices.ContainsFunc(r.strays, func(p netip.Prefix) bool { return p.Contains(f.dest.Addr()) })
	}
	return r.answers(f)
}

// answers reports whether an untranslated UDP flow has a frontend as its source, so that what
// its clients send there counts as replies and is never translated, see lateAnswers. A flow
// whose source something else translates is different: its replies go elsewhere.
//
// The node's own processes may send from the number of a node port, or of a port of an
// external IP which is the node's: only an answer to a flow that was deleted is certain to be
// one.
func (r *rules) answers(f *flow) bool {
	if !r.reversed || f.source != f.replyDest {
		return false
	}
	rule, ok := lookup(r.frontends, r.nodePortAddrs, vipOf(f.source))
	if !ok || rule.gone || rule.port.Serves(f.source) {
		return false
	}
	if _, ok := r.expected[answer{f.source, f.dest}]; ok {
		return true
	}
	a := f.source.Addr()
	return !has(r.nodeAddrs, a) && !has(r.nodePortAddrs, a)
}

// vipOf returns the VIP of an address and UDP port.
func vipOf(a netip.AddrPort) model.VIP {
	return model.VIP{Addr: a.Addr(), Protocol: model.UDP, Port: a.Port()}
}

func (r rule) stale(f *flow, now time.Time) bool {
	if r.port != nil && r.port.Serves(f.replySource) {
		return false
	}
	// An untranslated flow is older than the endpoints. But without the frontend, its address
	// may belong to another host that the flow really reaches; and an untranslated TCP
	// connection is always with another host.
	if !f.translated && (r.gone || f.protocol != model.UDP) {
		return false
	}
	if _, was := r.endpoints[f.replySource]; r.gone && r.endpoints != nil && !was {
		return false
	}
	until, ok := r.until[f.replySource]
	switch {
	case ok:
	case r.gone && f.protocol != model.UDP:
		return false // its service port's connections may no longer be ended
	default:
		until = r.until[netip.AddrPort{}]
	}
	return !now.Before(until)
}

// lookup returns the value of a frontend. If there is none and the address is a node-port
// address, it returns the value of the node port.
func lookup[V any](frontends map[model.VIP]V, nodePortAddrs []netip.Addr, vip model.VIP) (V, bool) {
	v, ok := frontends[vip]
	if !ok {
		if has(nodePortAddrs, vip.Addr) {
			vip.Addr = model.FamilyOf(vip.Addr).Unspecified()
			v, ok = frontends[vip]
		}
	}
	return v, ok
}
