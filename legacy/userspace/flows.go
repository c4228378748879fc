package userspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vmapd/vmapd/model"
)

// flow is a connection of TCP, or a client of UDP, that is connected to an endpoint.
type flow struct {
	model.Decision
	endpoint netip.AddrPort
	end      func()
	leaving  *time.Timer // ends it, as its endpoint is gone
}

// visitor is a client that was connected to a service port, and visit the endpoint that it had then.
type visitor struct {
	name model.ServicePortName
	addr netip.Addr
}

type visit struct {
	endpoint netip.AddrPort
	at       time.Time
}

// mostVisitors, of about 200 bytes, are remembered; at the limit, one is forgotten for another.
const mostVisitors = 1 << 17

// decide decides about a new connection, as of the snapshot now.
func (f *Forwarder) decide(vip model.VIP, from netip.AddrPort) model.Decision {
	w, source := f.now.Load(), from.Addr().Unmap()
	at, ok := w.places[vip]
	if !ok { // the listener closes in a moment
		return model.Decision{}
	}
	fs := w.Family(at.Family)
	c := model.Connection{
		Source: source, SourcePort: from.Port(), Protocol: vip.Protocol, Dest: netip.AddrPortFrom(vip.Addr, vip.Port),
		// No other host can have an address of the node as its source: the kernel drops such packets as martians.
		Node: source.IsLoopback() || source == vip.Addr || slices.Contains(fs.NodeAddrs, source),
	}
	if !c.Node && fs.Pods.Interface != "" {
		c.Interface = interfaceTo(source)
	}
	return fs.DecideAt(at.ServicePort, at.Frontend, c)
}

// choose returns an endpoint for the connection: the one that the client had, with affinity; the one of a lookup table;
// or any. It is none of avoid, and none that is a place: the process would connect to itself for ever.
func (f *Forwarder) choose(d model.Decision, avoid []netip.AddrPort) (endpoint netip.AddrPort, ok bool) {
	w := f.now.Load()
	var left []netip.AddrPort
	for e := range d.Port.In(d.TrafficPolicy) {
		d.Targets = append(d.Targets, model.Target{Endpoint: e})
		at := model.VIP{Addr: e.Addr.Addr(), Protocol: d.Protocol, Port: e.Addr.Port()}
		if !w.isPlace(at) && !slices.Contains(avoid, e.Addr) {
			left = append(left, e.Addr)
		}
	}
	if len(left) == 0 {
		return endpoint, false
	}
	f.mu.Lock()
	had := f.visitors[visitorOf(d)]
	f.mu.Unlock()
	if time.Since(had.at) < d.Port.Affinity && slices.Contains(left, had.endpoint) {
		return had.endpoint, true
	}
	if t, ok := d.Chosen(); ok && slices.Contains(left, t.Addr) {
		return t.Addr, true
	}
	return left[rand.IntN(len(left))], true
}

// visitorOf returns the client for session affinity. For a process of the node, the kernel chose the destination
// as the source, which differs with each address of the Service.
func visitorOf(d model.Decision) visitor {
	if d.Source == d.Dest.Addr() {
		d.Source = d.Port.Family.Loopback()
	}
	return visitor{d.Port.Name, d.Source}
}

// connect connects a client to one endpoint after the other until one accepts. Where the Service wants that, each but
// the last has as long as in the kernel, see model.ServicePort.RetryAfter.
func (f *Forwarder) connect(vip model.VIP, client netip.AddrPort) (*flow, net.Conn, error) {
	d := f.decide(vip, client)
	if d.Verdict != model.Forwarded {
		return nil, nil, errors.New(d.Verdict.String())
	}
	var tried []netip.AddrPort
	err := errors.New("no endpoint is left")
	for len(tried) < f.limits.tries {
		endpoint, ok := f.choose(d, tried)
		if !ok {
			break
		}
		try := f.limits.try
		if after := d.Port.RetryAfter; after > 0 && len(tried)+1 < min(d.Port.Count(d.TrafficPolicy), f.limits.tries) {
			try = min(try, after)
		}
		ctx, cancel := context.WithTimeout(f.ctx, try)
		var to net.Conn
		to, err = f.sockets.DialContext(ctx, vip.Protocol.String(), endpoint.String())
		cancel()
		if err == nil {
			return &flow{Decision: d, endpoint: endpoint}, to, nil
		}
		tried = append(tried, endpoint)
	}
	return nil, nil, fmt.Errorf("connect to any of %d endpoints, the last error: %w", len(tried), err)
}

// begin notes a flow and, with affinity, its client.
func (f *Forwarder) begin(fl *flow) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.flows[fl] = struct{}{}
	f.review(fl) // its endpoint may have left meanwhile
	if fl.Port.Affinity == 0 {
		return
	}
	for any := range f.visitors {
		if len(f.visitors) < mostVisitors {
			break
		}
		delete(f.visitors, any)
	}
	f.visitors[visitorOf(fl.Decision)] = visit{fl.endpoint, time.Now()}
}

// finish forgets a flow that has ended.
func (f *Forwarder) finish(fl *flow) {
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
