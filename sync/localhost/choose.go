package localhost

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vmapd/vmapd/model"
)

// maxRemembered is the number of clients of a service port whose endpoint is remembered for
// session affinity. Most nodes have one address to connect from.
const maxRemembered = 4096

// chooser chooses endpoints of one service port. Any number of goroutines may use it.
type chooser struct {
	mu        sync.Mutex
	algorithm model.Algorithm
	affinity  time.Duration
	slots     []netip.AddrPort // the endpoints; replaced as a whole, never written
	present   map[netip.AddrPort]struct{}
	turns     uint64 // of round-robin so far
	clients   map[netip.Addr]visit
}

// visit is the endpoint that a client was last connected to.
type visit struct {
	endpoint netip.AddrPort
	at       time.Time
}

// set replaces everything but the clients' endpoints.
func (c *chooser) set(w want) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.algorithm, c.affinity = w.algorithm, w.affinity
	c.slots, c.present = place(c.slots, w.endpoints)
	if c.affinity == 0 {
		c.clients = nil
	}
}

// has reports whether an endpoint is one of the service port's.
func (c *chooser) has(endpoint netip.AddrPort) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.present[endpoint]
	return ok
}

// choose returns an endpoint for a new connection of a client, but none of avoid. ok is
// false if no endpoint is left.
func (c *chooser) choose(client netip.Addr, avoid []netip.AddrPort) (endpoint netip.AddrPort, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	slots := c.slots
	if len(avoid) > 0 {
		slots = slices.DeleteFunc(slices.Clone(slots), func(e netip.AddrPort) bool { return slices.Contains(avoid, e) })
	}
	if len(slots) == 0 {
		return netip.AddrPort{}, false
	}
	v, ok := c.clients[client]
	if ok && time.Since(v.at) < c.affinity && slices.Contains(slots, v.endpoint) {
		return v.endpoint, true
	}
	return slots[c.index(client)%uint64(len(slots))], true
}

// index returns a client's next slot, modulo their number.
func (c *chooser) index(client netip.Addr) uint64 {
	switch c.algorithm {
	case model.RoundRobin:
		c.turns++
		return c.turns - 1
	case model.SourceHash:
		h := fnv.New64a() // the same after a restart
		b := client.As16()
		h.Write(b[:]) // never fails
		return h.Sum64()
	case model.Random:
	}
	return rand.Uint64()
}

// remember stores that a client was connected to an endpoint now.
func (c *chooser) remember(client netip.Addr, endpoint netip.AddrPort) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.affinity == 0 {
		return
	}
	if c.clients == nil {
		c.clients = map[netip.Addr]visit{}
	}
	if _, known := c.clients[client]; !known && len(c.clients) >= maxRemembered {
		delete(c.clients, oldest(c.clients, func(v visit) int64 { return v.at.UnixNano() }))
	}
	c.clients[client] = visit{endpoint, time.Now()}
}

// place gives each endpoint of a list a slot. An endpoint keeps the slot it had, as far as
// their number allows, so that source-hash sends few clients to another one.
func place(old, list []netip.AddrPort) ([]netip.AddrPort, map[netip.AddrPort]struct{}) {
	present := make(map[netip.AddrPort]struct{}, len(list))
	for _, e := range list {
		present[e] = struct{}{}
	}
	slots := make([]netip.AddrPort, len(list))
	placed := make(map[netip.AddrPort]struct{}, len(list))
	for i, e := range old[:min(len(old), len(list))] {
		if _, stays := present[e]; stays {
			slots[i] = e
			placed[e] = struct{}{}
		}
	}
	free := 0
	for _, e := range list {
		if _, ok := placed[e]; ok {
			continue
		}
		for slots[free].IsValid() {
			free++
		}
		slots[free] = e
	}
	return slots, present
}

// oldest returns the key whose value is from the earliest time. It looks at all values. With
// some thousand of them that takes as long as opening a few sockets, and only a node port at
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
