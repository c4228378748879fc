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

// familyEdit collects those of a FamilySnapshot.
type familyEdit struct {
	ports      *persist.Edit[*ServicePortName, *ServicePort]
	clusterIPs *persist.Edit[netip.Addr, struct{}]
	hairpins   *persist.Edit[netip.Addr, struct{}]
	endpoints  *persist.Edit[VIP, struct{}]
	noLocal    noLocal
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
	}
}

// setPort adds a service port or, if old is not nil, replaces that one, unless it says the
// same. What is new is counted before what is old is uncounted, so that what stays is
// never removed.
func (b *Builder) setPort(e *familyEdit, old, sp *ServicePort) {
	if old != nil && old.Equal(sp) {
		return
	}
	e.ports.Set(&sp.Name, sp)
	b.count(e, sp)
	if old != nil {
		b.uncount(e, old)
	}
}

func (b *Builder) deletePort(e *familyEdit, name ServicePortName) {
	if old, ok := e.ports.Get(&name); ok {
		e.ports.Delete(&name)
		b.uncount(e, old)
	}
}

// count counts what service ports are counted by.
func (b *Builder) count(e *familyEdit, sp *ServicePort) {
	e.noLocal.count(sp, 1)
	for _, ep := range sp.Endpoints {
		if ep.Local {
			b.hairpins.add(ep.Addr.Addr(), e.hairpins)
		}
		if b.countsEndpoints {
			b.endpoints.add(endpointVIP(sp, ep), e.endpoints)
		}
	}
}

func (b *Builder) uncount(e *familyEdit, sp *ServicePort) {
	e.noLocal.count(sp, -1)
	for _, ep := range sp.Endpoints {
		if ep.Local {
			b.hairpins.remove(ep.Addr.Addr(), e.hairpins)
		}
		if b.countsEndpoints {
			b.endpoints.remove(endpointVIP(sp, ep), e.endpoints)
		}
	}
}

// replaceClusterIP counts a Service's cluster IP; the zero Addr is none.
func (b *Builder) replaceClusterIP(e *familyEdit, was, now netip.Addr) {
	if was == now {
		return
	}
	if now.IsValid() {
		b.clusterIPs.add(now, e.clusterIPs)
	}
	if was.IsValid() {
		b.clusterIPs.remove(was, e.clusterIPs)
	}
}

// countEndpoints follows a change of Config.DropInvalid.
func (b *Builder) countEndpoints(e *edit) {
	if b.countsEndpoints == b.config.DropInvalid {
		return
	}
	b.countsEndpoints = b.config.DropInvalid
	change := b.endpoints.remove
	if b.countsEndpoints {
		change = b.endpoints.add
	}
	for f := range b.last.families {
		for sp := range b.last.families[f].ServicePorts() {
			for _, ep := range sp.Endpoints {
				change(endpointVIP(sp, ep), e.families[f].endpoints)
			}
		}
	}
}

func endpointVIP(sp *ServicePort, ep Endpoint) VIP {
	return VIP{ep.Addr.Addr(), sp.Name.Protocol, ep.Addr.Port()}
}

// counted counts how many Services or service ports need a key, of the keys that more
// than one needs. The others are in the snapshot and not here.
type counted[K comparable] map[K]int

func (c counted[K]) add(k K, e *persist.Edit[K, struct{}]) {
	if e.Set(k, struct{}{}) {
		return
	}
	c[k] = max(c[k], 1) + 1
}

func (c counted[K]) remove(k K, e *persist.Edit[K, struct{}]) {
	switch n := c[k]; n {
	case 0:
		e.Delete(k)
	case 2:
		delete(c, k)
	default:
		c[k] = n - 1
	}
}
