package model

import (
	"fmt"
	"net/netip"
	"slices"
)

// updateService makes the service ports of a Service anew. Those that are equal to the ones
// before keep their pointers.
func (b *Builder) updateService(e *edit, r *record) {
	was, now := r.was, r.service
	var problems []Problem
	if now != nil {
		problems = slices.Clip(now.rare.problems)
	}
	for _, f := range Families {
		into := &e.families[f]
		if now.clusterIP(f).IsValid() {
			for _, p := range now.ports {
				sp := &ServicePort{Name: now.portName(p), Family: f}
				sp.Frontends, problems = b.frontends(now, f, p, problems)
				b.decide(sp, now)
				var old *ServicePort
				if was.has(f, p) {
					old, _ = into.ports.Get(&sp.Name)
				}
				b.setPort(into, old, sp)
			}
		}
		if was.clusterIP(f).IsValid() {
			for _, p := range was.ports {
				if !now.has(f, p) {
					b.deletePort(into, was.portName(p))
				}
			}
		}
		b.replaceClusterIP(into, was.clusterIP(f), now.clusterIP(f))
	}
	b.setProblems(ObjectRef{"Service", r.name}, problems)
	e.setHealthCheck(r.name, b.healthCheck(now))
	r.was = now
}

// frontends returns the frontends that a port asks for and gets. It adds a problem for each
// that belongs to another.
func (b *Builder) frontends(s *service, f Family, p servicePort, problems []Problem) ([]Frontend, []Problem) {
	list := b.scratchFrontends[:0]
	for fe := range s.frontends(f, p) {
		whose := b.owner(fe.VIP, s, p)
		if whose == "" {
			list = append(list, fe)
			continue
		}
		problem := Problem{
			Object:  ObjectRef{"Service", s.record.name},
			Message: fmt.Sprintf("%v %v of port %q belongs to %s", fe.Kind, fe.VIP, p.name, whose),
		}
		if !slices.Contains(problems, problem) { // a node port reads the same in both families
			problems = append(problems, problem)
		}
	}
	b.scratchFrontends = list
	return append([]Frontend(nil), list...), problems
}

// owner describes the owner of a VIP that a port asks for, or returns "" if it is the port.
func (b *Builder) owner(v VIP, s *service, p servicePort) string {
	owner := b.claims.owners[v]
	if owner == s {
		for first := range s.wanting(v) {
			if first != p {
				return fmt.Sprintf("its port %q, which stands before it", first.name)
			}
			return ""
		}
	}
	if owner.created == s.created {
		return fmt.Sprintf("Service %v, which is as old and comes first by name", owner.record.name)
	}
	return fmt.Sprintf("Service %v, which is older", owner.record.name)
}

// decide makes all decisions about a service port that has its frontends.
func (b *Builder) decide(sp *ServicePort, s *service) {
	merged := merge(b.candidates(s.record, sp.Name, sp.Family))
	selected := choose(merged)
	var needed [len(TrafficPolicies)]bool
	for i := range sp.Frontends {
		fe := &sp.Frontends[i]
		s.applyPolicy(fe, selected)
		if sources := s.rare.sources[sp.Family]; fe.Kind == LoadBalancerIP && sources.restricted {
			fe.Restricted = true
			sp.SourceRanges = sources.ranges
			sp.NodeAllowed = contains(sp.SourceRanges, b.locality.primary[sp.Family])
		}
		for _, p := range TrafficPolicies {
			needed[p] = needed[p] || fe.Uses(p)
		}
	}
	sp.Endpoints = selected.endpoints(merged, needed)
	sp.Affinity = s.rare.affinity
	sp.Algorithm = b.config.Algorithm
	if s.rare.algorithm != nil {
		sp.Algorithm = *s.rare.algorithm
	}
	if sp.Name.Protocol != UDP {
		sp.ConnectionGrace = b.config.ConnectionGrace
		if s.rare.connectionGrace != nil {
			sp.ConnectionGrace = *s.rare.connectionGrace
		}
	}
	if _, ok := sp.EndsStale(); ok {
		sp.Draining = drained(merged, sp.Endpoints)
	}
}

// applyPolicy applies the traffic policies. If a Local one finds no endpoint on this
// node though others exist, connections are dropped and not rejected: the load balancer
// will soon choose another node, and the client tries again.
func (s *service) applyPolicy(fe *Frontend, selected selection) {
	isLocal := s.internalLocal
	if fe.Kind != ClusterIP {
		if isLocal = s.externalLocal; isLocal {
			fe.SourceNAT = MasqueradeNode
			fe.ShortCircuit = selected[Cluster] != 0
		} else {
			fe.SourceNAT = MasqueradeAlways
		}
	}
	if isLocal {
		fe.TrafficPolicy = Local
	}
	switch {
	case selected[Cluster] == 0:
		fe.Action = Reject
	case selected[fe.TrafficPolicy] == 0:
		fe.Action = Drop
	}
}

// candidates lists the endpoints that all slices of a Service offer for one port. The
// result is valid until the next call.
func (b *Builder) candidates(r *record, name ServicePortName, f Family) []candidate {
	b.scratch = b.scratch[:0]
	for _, s := range r.slices {
		port, ok := s.port(name.Port, name.Protocol)
		if !ok || s.family != f {
			continue
		}
		for addr, c := range s.all(b.locality.zone) {
			b.scratch = append(b.scratch, candidate{netip.AddrPortFrom(addr, port), c})
		}
	}
	return b.scratch
}
