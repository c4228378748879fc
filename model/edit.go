package model

import (
	"net/netip"

	"github.com/vmapd/vmapd/model/persist"
)

// edit has what the next Snapshot will have, and goes on from there.
type edit struct {
	families [len(Families)]familyEdit
	health   *persist.Edit[NamespacedName, HealthCheck]
}

type familyEdit struct {
	ports       *persist.Edit[*ServicePortName, *ServicePort]
	clusterIPs  counted[netip.Addr]
	hairpins    counted[netip.Addr]
	endpoints   counted[VIP] // only with dropInvalid
	dropInvalid bool
	noLocal     NoLocal
}

func newEdit(dropInvalid bool) *edit {
	e := &edit{health: persist.Map[NamespacedName, HealthCheck]{}.Edit(nameKeys)}
	for _, f := range Families {
		e.families[f] = familyEdit{
			ports:      persist.Map[*ServicePortName, *ServicePort]{}.Edit(ServicePortKeys),
			clusterIPs: newCounted(AddrKeys), hairpins: newCounted(AddrKeys), endpoints: newCounted(VIPKeys),
			dropInvalid: dropInvalid,
		}
	}
	return e
}

func (e *edit) done(next *Snapshot) {
	next.HealthChecks = e.health.Done()
	for _, f := range Families {
		from, to := &e.families[f], &next.families[f]
		to.ports = from.ports.Done()
		to.ClusterIPs = from.clusterIPs.Done()
		to.Hairpins = from.hairpins.Done()
		to.ServiceEndpoints = from.endpoints.Done()
		to.NoLocal = from.noLocal
	}
}

// setPort adds a service port, or replaces one that differs.
func (e *familyEdit) setPort(sp *ServicePort) {
	old, ok := e.ports.Get(&sp.Name)
	if !ok {
		old = &noPort
	} else if old.Equal(sp) {
		return
	}
	e.ports.Set(&sp.Name, sp)
	e.recount(old, sp)
}

// noPort is in place of a service port that does not exist.
var noPort ServicePort //nolint:gochecknoglobals // it is never written

func (e *familyEdit) deletePort(name ServicePortName) {
	if old, ok := e.ports.Get(&name); ok {
		e.ports.Delete(&name)
		e.recount(old, &noPort)
	}
}

// recount takes a service port from the counts and adds another.
func (e *familyEdit) recount(old, now *ServicePort) {
	e.noLocal.count(now, +1)
	e.noLocal.count(old, -1)
	e.countEndpoints(now, old, +1)
	e.countEndpoints(old, now, -1)
}

// countEndpoints adds the endpoints that another service port lacks to the counts (by is 1), or takes them from there
// (-1).
func (e *familyEdit) countEndpoints(sp, other *ServicePort, by int) {
	for _, ep := range sp.Endpoints {
		if !ep.Hairpin && !e.dropInvalid {
			continue
		}
		if i, found := other.Find(ep.Addr); found && other.Endpoints[i].Hairpin == ep.Hairpin {
			continue
		}
		if ep.Hairpin {
			e.hairpins.count(ep.Addr.Addr(), by)
		}
		if e.dropInvalid {
			e.endpoints.count(VIP{ep.Addr.Addr(), sp.Name.Protocol, ep.Addr.Port()}, by)
		}
	}
}

// replaceClusterIP counts a Service's cluster IP in place of another. The zero Addr is none.
func (e *familyEdit) replaceClusterIP(was, now netip.Addr) {
	if now.IsValid() {
		e.clusterIPs.count(now, +1)
	}
	if was.IsValid() {
		e.clusterIPs.count(was, -1)
	}
}

// counted is a set of keys that Services or service ports need.
type counted[K comparable] struct {
	*persist.Edit[K, struct{}]
	more map[K]int // how many need a key, if more than one does
}

func newCounted[K comparable](keys persist.KeyFuncs[K]) counted[K] {
	return counted[K]{persist.Map[K, struct{}]{}.Edit(keys), map[K]int{}}
}

// count changes the count of a key by 1 or -1.
func (c counted[K]) count(k K, by int) {
	if by > 0 {
		if !c.Set(k, struct{}{}) {
			c.more[k] = max(c.more[k], 1) + 1
		}
		return
	}
	switch n := c.more[k]; n {
	case 0:
		c.Delete(k)
	case 2:
		delete(c.more, k)
	default:
		c.more[k] = n - 1
	}
}
