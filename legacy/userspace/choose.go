package userspace

import (
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmapd/vmapd/model"
)

// maxRemembered is the number of clients of a service port whose endpoint is remembered for
// session affinity, and maxRememberedInAll that of all service ports. An entry takes about 150
// bytes.
const (
	maxRemembered      = 1 << 14
	maxRememberedInAll = 1 << 17
)

// chooser chooses endpoints of one service port. Any number of goroutines may use it.
type chooser struct {
	inAll *atomic.Int64 // clients that all choosers remember

	mu      sync.Mutex
	port    *model.ServicePort                           // of slots
	slots   [len(model.TrafficPolicies)][]netip.AddrPort // made for the first connection; an endpoint has several in a lookup table
	clients map[visit]visited
	closed  bool
}

// visit is a client that was connected by a traffic policy, as in modeltest.Memory.
type visit struct {
	client netip.Addr
	policy model.TrafficPolicy
}

// visited is the endpoint that a client was last connected to.
type visited struct {
	endpoint netip.AddrPort
	at       time.Time
}

// use lets the chooser choose among the endpoints of a snapshot's service port. c.mu is held.
func (c *chooser) use(sp *model.ServicePort) {
	if c.port == sp {
		return
	}
	c.port = sp
	for _, p := range model.TrafficPolicies {
		if table := sp.Table(p); table != nil {
			c.slots[p] = make([]netip.AddrPort, len(table))
			for i, e := range table {
				c.slots[p][i] = sp.Endpoints[e].Addr
			}
			continue
		}
		c.slots[p] = nil
		for e := range sp.In(p) {
			c.slots[p] = append(c.slots[p], e.Addr)
		}
	}
	if sp.Affinity == 0 {
		c.forget()
	}
}

// forget forgets all clients. c.mu is held.
func (c *chooser) forget() {
	c.inAll.Add(-int64(len(c.clients)))
	c.clients = nil
}

// close forgets everything.
func (c *chooser) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget()
	c.closed = true
}

// choose returns an endpoint of a traffic policy for a new connection of a client, but none of
// avoid. ok is false if no endpoint is left.
func (c *chooser) choose(sp *model.ServicePort, p model.TrafficPolicy, client netip.AddrPort, avoid []netip.AddrPort) (endpoint netip.AddrPort, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.use(sp)
	slots := c.slots[p]
	if len(avoid) > 0 {
		slots = slices.DeleteFunc(slices.Clone(slots), func(e netip.AddrPort) bool { return slices.Contains(avoid, e) })
	}
	if len(slots) == 0 {
		return netip.AddrPort{}, false
	}
	if v, ok := c.known(visit{client.Addr(), p}); ok && !slices.Contains(avoid, v.endpoint) {
		return v.endpoint, true
	}
	if a := sp.Algorithm; a.HasTable() {
		// Others than those to avoid keep their clients.
		if e := c.slots[p][model.TableSlot(a, client.Addr(), client.Port(), len(c.slots[p]))]; !slices.Contains(avoid, e) {
			return e, true
		}
		return slots[model.TableSlot(a, client.Addr(), client.Port(), len(slots))], true
	}
	return slots[rand.IntN(len(slots))], true
}

// known returns the endpoint of a client's last connection, if it is not too long ago and the
// endpoint is still there. c.mu is held.
func (c *chooser) known(key visit) (visited, bool) {
	v, ok := c.clients[key]
	return v, ok && time.Since(v.at) < c.port.Affinity && selects(c.port, key.policy, v.endpoint)
}

// selects reports whether a traffic policy selects an endpoint.
func selects(sp *model.ServicePort, p model.TrafficPolicy, a netip.AddrPort) bool {
	i, ok := slices.BinarySearchFunc(sp.Endpoints, a, func(e model.Endpoint, a netip.AddrPort) int { return e.Addr.Compare(a) })
	return ok && sp.Endpoints[i].In(p)
}

// remember stores that a client was connected to an endpoint of a traffic policy now. If the other
// policy selects the endpoint, too, the client has it for both, unless it has another one there.
func (c *chooser) remember(client netip.Addr, by model.TrafficPolicy, endpoint netip.AddrPort) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.port == nil || c.port.Affinity == 0 {
		return
	}
	if c.clients == nil {
		c.clients = map[visit]visited{}
	}
	for _, p := range model.TrafficPolicies {
		key := visit{client, p}
		if _, known := c.known(key); p != by && (known || !selects(c.port, p, endpoint)) {
			continue
		}
		if _, present := c.clients[key]; present || c.makeRoom() {
			c.clients[key] = visited{endpoint, time.Now()}
		}
	}
}

// makeRoom counts one more client. At a limit, those that were away for the longest time are
// forgotten, some at once: to find them, all are sorted. It reports false if there is none.
func (c *chooser) makeRoom() bool {
	if c.inAll.Add(1) > maxRememberedInAll || len(c.clients) >= maxRemembered {
		if len(c.clients) == 0 {
			c.inAll.Add(-1)
			return false
		}
		type entry struct {
			visit
			visited
		}
		list := make([]entry, 0, len(c.clients))
		for k, v := range c.clients {
			list = append(list, entry{k, v})
		}
		slices.SortFunc(list, func(a, b entry) int { return a.at.Compare(b.at) })
		for _, e := range list[:max(1, len(list)/32)] {
			delete(c.clients, e.visit)
			c.inAll.Add(-1)
		}
	}
	return true
}

// oldest returns the key whose value is from the earliest time. It looks at all values. With
// some thousand of them that takes as long as opening a few sockets, and only a listener at
// its limit needs it.
func oldest[K comparable, V any](m map[K]V, at func(V) int64) K {
	var key K
	earliest := int64(math.MaxInt64)
	for k, v := range m {
		if t := at(v); t < earliest {
			key, earliest = k, t
		}
	}
	return key
}
