package model

import (
	"iter"
	"net/netip"

	"github.com/vmapd/vmapd/model/persist"
)

// HealthCheck is the node's answer to a load balancer's health check of one Service
// (spec.healthCheckNodePort, for type LoadBalancer with externalTrafficPolicy Local). It
// never changes; a later snapshot in which it is equal holds the same pointer.
type HealthCheck struct {
	Service  NamespacedName
	Port     uint16                             // TCP
	Families [len(Families)]HealthCheckOfFamily // a load balancer asks about the family in which it asks
}

// HealthCheckOfFamily is the answer in one IP family.
type HealthCheckOfFamily struct {
	Has bool // the Service is in the family; otherwise nothing answers
	// LocalEndpoints is the number of addresses of ready endpoints on this node, over all
	// ports of the Service. It excludes terminating endpoints, which may still serve, so that
	// load balancers turn away in time.
	LocalEndpoints int
}

// HealthChecks yields the health checks of all Services.
func (s *Snapshot) HealthChecks() iter.Seq[*HealthCheck] { return values(s.health) }

// HealthCheckChanges yields the health checks that differ from old to s. A nil Old or New
// means that the Service had or has none. If old is nil, all are new.
func (s *Snapshot) HealthCheckChanges(old *Snapshot) iter.Seq[Change[*HealthCheck]] {
	var before persist.Map[NamespacedName, *HealthCheck]
	if old != nil {
		before = old.health
	}
	return valueChanges(nameKeys, s.health, before)
}

func (s *service) parseHealthCheck(in Service) {
	if in.HealthCheckNodePort == 0 || in.Type != "LoadBalancer" || !s.externalLocal {
		return
	}
	port, err := parsePort(in.HealthCheckNodePort)
	if err != nil {
		s.problem("spec.healthCheckNodePort", "%v", err)
		return
	}
	s.healthCheckNodePort = port
}

// healthCheckVIP is what a Service with a health-check node port claims. No frontend has a loopback address.
func healthCheckVIP(port uint16) VIP { return VIP{IPv4.Loopback(), TCP, port} }

// reportHealthCheck adds a problem if the number of a health-check node port has been given twice. An
// API server gives each number once.
func (b *Builder) reportHealthCheck(s *service, problems *problemList) {
	const field = "spec.healthCheckNodePort"
	port := s.healthCheckNodePort
	if port == 0 {
		return
	}
	for _, f := range Families {
		if o := b.claims.owners[VIP{f.Unspecified(), TCP, port}]; o != nil && s.clusterIP(f).IsValid() {
			problems.add(field, "%d is a node port of Service %v, which gets the connections", port, o.record.name)
			return
		}
	}
	for _, o := range b.claims.all(healthCheckVIP(port)) {
		if o != s {
			problems.add(field, "%d is the one of Service %v, too: the node answers about one of them", port, o.record.name)
			return
		}
	}
}

// healthCheck returns the health check of a Service, or nil. The Service may be nil.
func (b *Builder) healthCheck(s *service, served [len(Families)]part) *HealthCheck {
	if s == nil || s.healthCheckNodePort == 0 {
		return nil
	}
	h := &HealthCheck{Service: s.record.name, Port: s.healthCheckNodePort}
	for _, f := range Families {
		if !s.clusterIP(f).IsValid() {
			continue
		}
		addrs := map[netip.Addr]struct{}{}
		for _, p := range s.ports[:served[f].ports] {
			for _, c := range b.lists(s.record, s.portName(p), f).candidates {
				if c.has(ready | local) {
					addrs[c.addr.Addr()] = struct{}{}
				}
			}
		}
		h.Families[f] = HealthCheckOfFamily{true, len(addrs)}
	}
	return h
}

// setHealthCheck replaces the health check of a Service by one that differs; nil is none.
func (e *edit) setHealthCheck(name NamespacedName, h *HealthCheck) {
	if h == nil {
		e.health.Delete(name)
	} else if old, ok := e.health.Get(name); !ok || *old != *h {
		e.health.Set(name, h)
	}
}
