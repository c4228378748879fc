package userspace

import (
	"cmp"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
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

// flows knows who is, and was, connected to what. Any number of goroutines may use it.
type flows struct {
	mu       sync.Mutex
	all      map[*flow]struct{}
	visitors map[visitor]visit  // with session affinity
	counts   map[portKey]*Count // of the service ports that are served
}

// portKey identifies a service port.
type portKey struct {
	family model.Family
	name   model.ServicePortName
}

func keyOf(sp *model.ServicePort) portKey { return portKey{sp.Family, sp.Name} }

// visitor is a client that was connected to a service port, and visit the endpoint that it had then.
type visitor struct {
	portKey
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
	fs := w.Family(at.Port.Family)
	c := model.Connection{
		Source: source, SourcePort: from.Port(), Protocol: vip.Protocol, Dest: netip.AddrPortFrom(vip.Addr, vip.Port),
		// No other host can have an address of the node as its source: the kernel drops such packets as martians.
		Node: source.IsLoopback() || source == vip.Addr || slices.Contains(fs.NodeAddrs, source),
	}
	if !c.Node && fs.Pods.Interface != "" {
		c.Interface = interfaceTo(source)
	}
	d := fs.DecideAt(at.Port, at.Frontend, c)
	if d.Verdict == model.Rejected {
		f.flows.count(at.Port, func(c *Count) { c.Refused++ })
	}
	return d
}

// choose returns an endpoint for the connection: the one that the client had, with affinity; the one of a lookup table;
// or any. It is none of avoid, and none that is a place: the process would connect to itself for ever.
func (f *Forwarder) choose(d model.Decision, avoid []netip.AddrPort) (endpoint netip.AddrPort, ok bool) {
	w := f.now.Load()
	var left []netip.AddrPort
	for e := range d.Port.In(d.TrafficPolicy) {
		d.Targets = append(d.Targets, model.Target{Endpoint: e})
		if !w.isPlace(e.Addr, d.Protocol) && !slices.Contains(avoid, e.Addr) {
			left = append(left, e.Addr)
		}
	}
	if len(left) == 0 {
		return endpoint, false
	}
	f.flows.mu.Lock()
	had := f.flows.visitors[visitorOf(d)]
	f.flows.mu.Unlock()
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
	return visitor{keyOf(d.Port), d.Source}
}

// begin notes a flow, and ends it if its endpoint has left meanwhile.
func (f *Forwarder) begin(fl *flow) {
	f.flows.begin(fl)
	w, all := f.now.Load(), f.ctx.Err() != nil
	if _, stale := w.stale(fl); stale || all {
		f.flows.follow(w, all)
	}
}

func (fs *flows) begin(fl *flow) {
	fs.count(fl.Port, func(c *Count) { c.Forwarded++ })
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.all[fl] = struct{}{}
	if fl.Port.Affinity == 0 {
		return
	}
	for any := range fs.visitors {
		if len(fs.visitors) < mostVisitors {
			break
		}
		delete(fs.visitors, any)
	}
	fs.visitors[visitorOf(fl.Decision)] = visit{fl.endpoint, time.Now()}
}

// finish forgets a flow that has ended.
func (fs *flows) finish(fl *flow) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	delete(fs.all, fl)
	if fl.leaving != nil {
		fl.leaving.Stop()
	}
}

// count adds to the figures of a service port.
func (fs *flows) count(sp *model.ServicePort, add func(*Count)) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if c := fs.counts[keyOf(sp)]; c != nil {
		add(c)
	}
}

// stale reports whether a flow is to end, as its endpoint serves no more, and after which time. A client of UDP
// ends also if its place is another service port's.
func (w *wanted) stale(fl *flow) (after time.Duration, ok bool) {
	sp, _ := w.Family(fl.Port.Family).ServicePort(fl.Port.Name)
	at := w.places[model.VIP{Addr: fl.Dest.Addr(), Protocol: fl.Protocol, Port: fl.Dest.Port()}].Port
	after, ok = cmp.Or(sp, fl.Port).EndsStale()
	return after, ok && (!sp.Serves(fl.endpoint) || fl.Protocol == model.UDP && (at == nil || at.Name != fl.Port.Name))
}

// follow ends the flows that a snapshot makes stale. all ends all.
func (fs *flows) follow(w *wanted, all bool) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for fl := range fs.all {
		switch after, stale := w.stale(fl); {
		case all, stale && after == 0:
			fl.end()
		case stale && fl.leaving == nil:
			fl.leaving = time.AfterFunc(after, fl.end)
		case !stale && fl.leaving != nil:
			fl.leaving.Stop()
			fl.leaving = nil
		}
	}
	counts := map[portKey]*Count{}
	for _, at := range w.places {
		key := keyOf(at.Port)
		counts[key] = cmp.Or(fs.counts[key], &Count{Name: key.name, Family: key.family})
	}
	fs.counts = counts
}
