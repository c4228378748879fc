package userspace

import (
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmapd/vmapd/model"
)

// port is a service port that is served somewhere. It is there until its last place is gone.
type port struct {
	key     portKey
	chooser chooser
	places  []Place
	addrs   []netip.Addr // on the device
	outcomes

	mu      sync.Mutex
	conns   map[netip.AddrPort]map[*conn]struct{} // of TCP, by endpoint
	leaving map[netip.AddrPort]*time.Timer        // endpoints whose connections will be ended
}

// portKey identifies a port.
type portKey struct {
	family model.Family
	name   model.ServicePortName
}

// entry is a place that has a listener, or should have one. An address of a Service precedes a
// node port that is the same.
type entry struct {
	vip      model.VIP
	owner    atomic.Pointer[owner] // the one of owners that is served
	owners   [2]*owner             // a Service's address, and a node port
	listener listener              // nil: it is missing
	absent   bool                  // it is missing as the node does not have the address
	said     string                // the error that was reported; "": none
	told     bool                  // the Service was told that it is over the limit
}

func (e *entry) family() model.Family { return model.FamilyOf(e.vip.Addr) }

// owner is a service port with the kind of its frontend.
type owner struct {
	*port
	kind model.FrontendKind
}

func rank(k model.FrontendKind) int {
	if k == model.NodePort {
		return 1
	}
	return 0
}

// choose sets who is served. It reports false if nobody is left.
func (e *entry) choose() bool {
	for _, o := range e.owners {
		if o != nil {
			e.owner.Store(o)
			return true
		}
	}
	return false
}

// listener accepts connections until it is closed.
type listener interface {
	// changed is called when the place has other endpoints, or another owner.
	changed()
	// close frees the address and waits for the goroutines. TCP connections stay.
	close()
}

// decision is the verdict about a connection, and where to send it.
type decision struct {
	model.Decision
	owner  *owner
	client netip.Addr // for session affinity
}

// decide decides about a new connection, as of the snapshot now.
func (e *env) decide(at *entry, from netip.AddrPort, iface string) decision {
	source := from.Addr()
	o := at.owner.Load()
	fs := e.snapshot.Load().Family(o.key.family)
	c := model.Connection{Source: source, SourcePort: from.Port(), Interface: iface, Protocol: at.vip.Protocol, Dest: netip.AddrPortFrom(at.vip.Addr, at.vip.Port)}
	c.Node = isNode(fs, c)
	if c.Node {
		c.Interface = ""
	}
	d := decision{owner: o, client: source}
	if source == at.vip.Addr && !source.IsLoopback() {
		// A process of the node: the kernel chose the destination as the source, which differs with
		// each address of the Service.
		d.client = fs.Family.Loopback()
	}
	d.Decision = model.Decision{Connection: c, Verdict: model.Rejected, Why: model.NoEndpoints}
	if sp, ok := fs.ServicePort(o.key.name); ok {
		if fe := frontendAt(sp, Place{at.vip, o.kind}); fe != nil {
			d.Decision = fs.DecideAt(sp, fe, c)
		}
	}
	return d
}

// isNode reports whether a process of the node makes a connection. No other host can have an address
// of the node as its source: the kernel drops such packets as martians.
func isNode(fs *model.FamilySnapshot, c model.Connection) bool {
	return c.Source.IsLoopback() || c.Source == c.Dest.Addr() || fs.Settings != nil && slices.Contains(fs.NodeAddrs, c.Source)
}

// choose returns an endpoint for the connection, but none of avoid, and none that this process
// itself listens on: the connection would come back for ever.
func (e *env) choose(d decision, avoid []netip.AddrPort) (netip.AddrPort, bool) {
	for {
		endpoint, ok := d.owner.chooser.choose(d.Port, d.TrafficPolicy, netip.AddrPortFrom(d.client, d.SourcePort), avoid)
		if !ok {
			return endpoint, false
		}
		if _, loops := e.listening.Load(model.VIP{Addr: endpoint.Addr(), Protocol: d.Protocol, Port: endpoint.Port()}); !loops {
			return endpoint, true
		}
		avoid = append(slices.Clip(avoid), endpoint)
	}
}

// has reports whether connections to an endpoint may go on, as of the snapshot now.
func (e *env) has(at *entry, endpoint netip.AddrPort) bool {
	return e.current(at.owner.Load()).Serves(endpoint)
}

// current returns the service port of the snapshot now; nil if there is none.
func (e *env) current(o *owner) *model.ServicePort {
	sp, _ := e.snapshot.Load().Family(o.key.family).ServicePort(o.key.name)
	return sp
}

// begin notes a connection.
func (p *port) begin(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns == nil {
		p.conns = map[netip.AddrPort]map[*conn]struct{}{}
	}
	if p.conns[c.endpoint] == nil {
		p.conns[c.endpoint] = map[*conn]struct{}{}
	}
	p.conns[c.endpoint][c] = struct{}{}
}

// end forgets a connection that has ended.
func (p *port) end(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns[c.endpoint], c)
	if len(p.conns[c.endpoint]) > 0 {
		return
	}
	delete(p.conns, c.endpoint)
	if t := p.leaving[c.endpoint]; t != nil {
		t.Stop()
		delete(p.leaving, c.endpoint)
	}
}

// changed ends the connections to endpoints that do not serve any more, once the time of grace has
// passed, if the service port says so. now is nil if it is deleted.
func (p *port) changed(old, now *model.ServicePort) {
	sp := now
	if sp == nil {
		sp = old
	}
	after, ends := sp.EndsStale()
	p.mu.Lock()
	defer p.mu.Unlock()
	for endpoint := range p.conns {
		timer := p.leaving[endpoint]
		switch gone := ends && !now.Serves(endpoint); {
		case gone && timer == nil:
			if p.leaving == nil {
				p.leaving = map[netip.AddrPort]*time.Timer{}
			}
			p.leaving[endpoint] = time.AfterFunc(after, func() { p.cut(endpoint) })
		case !gone && timer != nil:
			timer.Stop()
			delete(p.leaving, endpoint)
		}
	}
}

// cut resets the connections to an endpoint, unless it has come back.
func (p *port) cut(endpoint netip.AddrPort) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.leaving[endpoint] == nil {
		return
	}
	for c := range p.conns[endpoint] {
		c.reset()
	}
}
