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

// setPort adds a service port, or replaces old, if that is not nil and differs.
func (b *Builder) setPort(e *familyEdit, old, sp *ServicePort) {
	if old == nil {
		old = &noPort
	} else if old.Equal(sp) {
		return
	}
	e.ports.Set(&sp.Name, sp)
	b.recount(e, old, sp)
}

// noPort is in place of a service port that does not exist.
var noPort ServicePort //nolint:gochecknoglobals // it is never written

func (b *Builder) deletePort(e *familyEdit, name ServicePortName) {
	if old, ok := e.ports.Get(&name); ok {
		e.ports.Delete(&name)
		b.recount(e, old, &noPort)
	}
}

// recount takes a service port from the counts and adds another. The cost depends on the
// endpoints that only one of them has.
func (b *Builder) recount(e *familyEdit, old, now *ServicePort) {
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
			b.countEndpoint(e, now, joined[0], +1)
			joined = joined[1:]
		}
		if order <= 0 {
			b.countEndpoint(e, old, left[0], -1)
			left = left[1:]
		}
	}
}

// countEndpoint adds an endpoint to the counts (by is 1) or takes it from them (-1).
func (b *Builder) countEndpoint(e *familyEdit, sp *ServicePort, ep Endpoint, by int) {
	if ep.Hairpin {
		b.hairpins.count(ep.Addr.Addr(), by, e.hairpins)
	}
	if b.countsEndpoints {
		b.endpoints.count(endpointVIP(sp, ep), by, e.endpoints)
	}
}

// replaceClusterIP counts a Service's cluster IP in place of another. The zero Addr is none.
func (b *Builder) replaceClusterIP(e *familyEdit, was, now netip.Addr) {
	if was == now {
		return
	}
	if now.IsValid() {
		b.clusterIPs.count(now, +1, e.clusterIPs)
	}
	if was.IsValid() {
		b.clusterIPs.count(was, -1, e.clusterIPs)
	}
}

// countEndpoints follows a change of Config.DropInvalid.
func (b *Builder) countEndpoints(e *edit) {
	if b.countsEndpoints == b.config.DropInvalid {
		return
	}
	b.countsEndpoints = b.config.DropInvalid
	by := -1
	if b.countsEndpoints {
		by = +1
	}
	for f := range b.last.families {
		for sp := range b.last.families[f].ServicePorts() {
			for _, ep := range sp.Endpoints {
				b.endpoints.count(endpointVIP(sp, ep), by, e.families[f].endpoints)
			}
		}
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
