package userspace

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"

	"github.com/vmapd/vmapd/model"
)

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

// choose returns the endpoints to try, in their order: first the one that the client had, with affinity, or the one of
// a lookup table; then any. It is none that is a place: the process would connect to itself for ever.
func (f *Forwarder) choose(d model.Decision) []netip.AddrPort {
	w := f.now.Load()
	var all []netip.AddrPort
	for e := range d.Port.In(d.TrafficPolicy) {
		d.Targets = append(d.Targets, model.Target{Endpoint: e})
		if !w.isPlace(model.VIP{Addr: e.Addr.Addr(), Protocol: d.Protocol, Port: e.Addr.Port()}) {
			all = append(all, e.Addr)
		}
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	first, _ := d.Chosen()
	if had, ok := f.visitors.Get(visitorOf(d)); ok && d.Port.Affinity > 0 && slices.Contains(all, had.(netip.AddrPort)) {
		first.Addr = had.(netip.AddrPort)
	}
	if i := slices.Index(all, first.Addr); i > 0 {
		all[0], all[i] = all[i], all[0]
	}
	return all[:min(len(all), f.limits.tries)]
}

// visitor is a client that was connected to a service port with session affinity.
type visitor struct {
	name model.ServicePortName
	addr netip.Addr
}

// visitorOf returns the client. For a process of the node, the kernel chose the destination as the source, which
// differs with each address of the Service.
func visitorOf(d model.Decision) visitor {
	if d.Source == d.Dest.Addr() {
		d.Source = d.Port.Family.Loopback()
	}
	return visitor{d.Port.Name, d.Source}
}

// connect connects a client to one endpoint after the other until one accepts. Where the Service wants that, each but
// the last has as long as in the kernel, see model.ServicePort.RetryAfter.
func (f *Forwarder) connect(vip model.VIP, client netip.AddrPort) (*flow, error) {
	d := f.decide(vip, client)
	if d.Verdict != model.Forwarded {
		return nil, errors.New(d.Verdict.String())
	}
	endpoints, err := f.choose(d), errors.New("no endpoint is left")
	for i, endpoint := range endpoints {
		try := f.limits.try
		if after := d.Port.RetryAfter; after > 0 && i+1 < len(endpoints) {
			try = min(try, after)
		}
		ctx, cancel := context.WithTimeout(f.ctx, try)
		var to net.Conn
		to, err = f.sockets.DialContext(ctx, vip.Protocol.String(), endpoint.String())
		cancel()
		if err == nil {
			return &flow{Decision: d, endpoint: endpoint, server: to}, nil
		}
	}
	return nil, fmt.Errorf("connect to any of %d endpoints, the last error: %w", len(endpoints), err)
}
