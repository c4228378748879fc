package userspace

import (
	"cmp"
	"net"
	"net/netip"
	"time"

	"github.com/vmapd/vmapd/model"
)

// flow is a connection of TCP, or a client of UDP, that is connected to an endpoint.
type flow struct {
	model.Decision
	endpoint netip.AddrPort
	server   net.Conn    // to the endpoint
	client   net.Conn    // nil for UDP
	leaving  *time.Timer // ends it, as its endpoint is gone
}

// end ends a flow: TCP by resets, so that the peers get an error.
func (fl *flow) end() {
	reset(fl.server)
	if fl.client != nil {
		reset(fl.client)
	}
}

// hold notes a flow and, with affinity, its client, and lets it go on until it has ended.
func (f *Forwarder) hold(fl *flow, goOn func()) {
	if a := fl.Port.Affinity; a > 0 {
		f.visitors.Add(visitorOf(fl.Decision), fl.endpoint, a)
	}
	f.mu.Lock()
	f.flows[fl] = struct{}{}
	f.review(fl) // its endpoint may have left meanwhile
	f.mu.Unlock()
	goOn()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.flows, fl)
	if fl.leaving != nil {
		fl.leaving.Stop()
	}
}

// review ends a flow to an endpoint that serves no more, at once or after the time of grace. A client of UDP ends also
// if its place is another service port's. f.mu is held.
func (f *Forwarder) review(fl *flow) {
	w := f.now.Load()
	sp, _ := w.Family(fl.Port.Family).ServicePort(fl.Port.Name)
	at := w.places[model.VIP{Addr: fl.Dest.Addr(), Protocol: fl.Protocol, Port: fl.Dest.Port()}].ServicePort
	after, stale := cmp.Or(sp, fl.Port).EndsStale()
	lost := fl.Protocol == model.UDP && (at == nil || at.Name != fl.Port.Name)
	stale = stale && (lost || !sp.Serves(fl.endpoint))
	switch {
	case f.ctx.Err() != nil, stale && after == 0:
		fl.end()
	case stale && fl.leaving == nil:
		fl.leaving = time.AfterFunc(after, fl.end)
	case !stale && fl.leaving != nil:
		fl.leaving.Stop()
		fl.leaving = nil
	}
}
