package model

import (
	"net/netip"

	"github.com/vmapd/vmapd/model/persist"
)

// edit collects the changes that turn one Snapshot into the next.
type edit struct {
	families [len(Families)]familyEdit
	health   *persist.Edit[NamespacedName, *HealthCheck]
}

// familyEdit collects the changes of a FamilySnapshot.
type familyEdit struct {
	ports      *persist.Edit[*ServicePortName, *ServicePort]
	clusterIPs *persist.Edit[netip.Addr, struct{}]
	hairpins   *persist.Edit[netip.Addr, struct{}]
	endpoints  *persist.Edit[VIP, struct{}]
	noLocal    noLocal
	unserved   int
}

func newEdit(s *Snapshot) *edit {
	e := &edit{health: s.health.Edit(nameKeys)}
	for _, f := range Families {
		fs := &s.families[f]
		e.families[f] = familyEdit{
			ports:      fs.ports.Edit(portKeys),
			clusterIPs: fs.clusterIPs.Edit(AddrKeys),
			hairpins:   fs.hairpins.Edit(AddrKeys),
			endpoints:  fs.endpoints.Edit(VIPKeys),
			noLocal:    fs.noLocal,
			unserved:   fs.unserved,
		}
	}
	return e
}

func (e *edit) done(next *Snapshot) {
	next.health = e.health.Done()
	for _, f := range Families {
		from, to := &e.families[f], &next.families[f]
		to.ports = from.ports.Done()
		to.clusterIPs = from.clusterIPs.Done()
		to.hairpins = from.hairpins.Done()
		to.endpoints = from.endpoints.Done()
		to.noLocal = from.noLocal
		to.unserved = from.unserved
	}
}

// counts are how many Services or service ports need what a FamilySnapshot has once.
type counts struct {
	clusterIPs counted[netip.Addr]
	hairpins   counted[netip.Addr]
	endpoints  counted[VIP] // nil without Config.DropInvalid
}

func newCounts(c Config) counts {
	n := counts{clusterIPs: counted[netip.Addr]{}, hairpins: counted[netip.Addr]{}}
	if c.DropInvalid {
		n.endpoints = counted[VIP]{}
	}
	return n
}

// setPort adds a service port, or replaces one that differs.
func (c *counts) setPort(e *familyEdit, sp *ServicePort) {
	old, ok := e.ports.Get(&sp.Name)
	if !ok {
		old = &noPort
	} else if old.Equal(sp) {
		return
	}
	e.ports.Set(&sp.Name, sp)
	c.recount(e, old, sp)
}

// noPort is in place of a service port that does not exist.
var noPort ServicePort //nolint:gochecknoglobals // it is never written

func (c *counts) deletePort(e *familyEdit, name ServicePortName) {
	if old, ok := e.ports.Get(&name); ok {
		e.ports.Delete(&name)
		c.recount(e, old, &noPort)
	}
}

// recount takes a service port from the counts and adds another. The cost depends on the
// endpoints that only one of them has.
func (c *counts) recount(e *familyEdit, old, now *ServicePort) {
	e.noLocal.count(now, +1)
	e.noLocal.count(old, -1)
	left, joined := old.Endpoints, now.Endpoints
	for len(left) > 0 || len(joined) > 0 {
		order := -1
		switch {
		case len(left) == 0:
			order = +1
		case len(joined) > 0:
			order = left[0].Addr.Compare(joined[0].Addr)
		}
		if order == 0 && left[0].Hairpin == joined[0].Hairpin {
			left, joined = left[1:], joined[1:]
			continue
		}
		if order >= 0 {
			c.countEndpoint(e, now, joined[0], +1)
			joined = joined[1:]
		}
		if order <= 0 {
			c.countEndpoint(e, old, left[0], -1)
			left = left[1:]
		}
	}
}

// countEndpoint adds an endpoint to the counts (by is 1) or takes it from them (-1).
func (c *counts) countEndpoint(e *familyEdit, sp *ServicePort, ep Endpoint, by int) {
	if ep.Hairpin {
		c.hairpins.count(ep.Addr.Addr(), by, e.hairpins)
	}
	if c.endpoints != nil {
		c.endpoints.count(endpointVIP(sp, ep), by, e.endpoints)
	}
}

// replaceClusterIP counts a Service's cluster IP in place of another. The zero Addr is none.
func (c *counts) replaceClusterIP(e *familyEdit, was, now netip.Addr) {
	if was == now {
		return
	}
	if now.IsValid() {
		c.clusterIPs.count(now, +1, e.clusterIPs)
	}
	if was.IsValid() {
		c.clusterIPs.count(was, -1, e.clusterIPs)
	}
}

func endpointVIP(sp *ServicePort, ep Endpoint) VIP {
	return VIP{ep.Addr.Addr(), sp.Name.Protocol, ep.Addr.Port()}
}

// counted holds how many Services or service ports need a key, if more than one does. A key
// that one needs is in the snapshot alone.
type counted[K comparable] map[K]int

// count changes the count of a key by 1 or -1.
func (c counted[K]) count(k K, by int, e *persist.Edit[K, struct{}]) {
	if by > 0 {
		if !e.Set(k, struct{}{}) {
			c[k] = max(c[k], 1) + 1
		}
		return
	}
	switch n := c[k]; n {
	case 0:
		e.Delete(k)
	case 2:
		delete(c, k)
	default:
		c[k] = n - 1
	}
}

// setHealthCheck replaces the health check of a Service by one that differs; nil is none.
func (e *edit) setHealthCheck(name NamespacedName, h *HealthCheck) {
	if h == nil {
		e.health.Delete(name)
	} else if old, ok := e.health.Get(name); !ok || *old != *h {
		e.health.Set(name, h)
	}
}
