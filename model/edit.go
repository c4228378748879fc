package model

import (
	"net/netip"

	"github.com/vmapd/vmapd/model/persist"
)

// familyEdit collects the changes that turn one FamilySnapshot into the next.
type familyEdit struct {
	target     *FamilySnapshot
	ports      *persist.Edit[ServicePortName, *ServicePort]
	clusterIPs *persist.Edit[netip.Addr, struct{}]
	hairpins   *persist.Edit[netip.Addr, struct{}]
	endpoints  *persist.Edit[VIP, struct{}]
	noLocal    noLocal
}

func newFamilyEdit(target *FamilySnapshot) *familyEdit {
	return &familyEdit{
		target:     target,
		ports:      target.ports.Edit(ServicePortKeys),
		clusterIPs: target.clusterIPs.Edit(addrKeys),
		hairpins:   target.hairpins.Edit(addrKeys),
		endpoints:  target.endpoints.Edit(vipKeys),
		noLocal:    target.noLocal,
	}
}

func (e *familyEdit) done() {
	e.target.ports = e.ports.Done()
	e.target.clusterIPs = e.clusterIPs.Done()
	e.target.hairpins = e.hairpins.Done()
	e.target.endpoints = e.endpoints.Done()
	e.target.noLocal = e.noLocal
}

// replaceProgrammed exchanges a Service's contribution. What is new is counted
// before what is old is uncounted, so that what stays is never removed.
func (b *Builder) replaceProgrammed(e *familyEdit, f Family, old, now *programmed) {
	kept := map[*ServicePort]bool{}
	if old != nil {
		for _, sp := range old.ports[f] {
			kept[sp] = false
		}
	}
	for _, sp := range now.ports[f] {
		if _, ok := kept[sp]; ok {
			kept[sp] = true
			continue
		}
		e.ports.Set(sp.Name, sp)
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
	if a := now.clusterIPs[f]; a.IsValid() {
		b.clusterIPs.add(a, e.clusterIPs)
	}
	if old == nil {
		return
	}
	for _, sp := range old.ports[f] {
		if kept[sp] {
			continue
		}
		if now, ok := e.ports.Get(sp.Name); ok && now == sp {
			e.ports.Delete(sp.Name)
		}
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
	if a := old.clusterIPs[f]; a.IsValid() {
		b.clusterIPs.remove(a, e.clusterIPs)
	}
}

// countEndpoints follows a change of Config.DropInvalid.
func (b *Builder) countEndpoints(edits [len(Families)]*familyEdit) {
	if b.countsEndpoints == b.config.DropInvalid {
		return
	}
	b.countsEndpoints = b.config.DropInvalid
	change := b.endpoints.remove
	if b.countsEndpoints {
		change = b.endpoints.add
	}
	for _, p := range b.programmed {
		for f, ports := range p.ports {
			for _, sp := range ports {
				for _, ep := range sp.Endpoints {
					change(endpointVIP(sp, ep), edits[f].endpoints)
				}
			}
		}
	}
}

func endpointVIP(sp *ServicePort, ep Endpoint) VIP {
	return VIP{ep.Addr.Addr(), sp.Name.Protocol, ep.Addr.Port()}
}

func (c counted[K]) add(k K, e *persist.Edit[K, struct{}]) {
	if c[k]++; c[k] == 1 {
		e.Set(k, struct{}{})
	}
}

func (c counted[K]) remove(k K, e *persist.Edit[K, struct{}]) {
	if c[k]--; c[k] == 0 {
		delete(c, k)
		e.Delete(k)
	}
}
