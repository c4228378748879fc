package model

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"
)

// Snapshot returns the current state. If nothing changed since the last call, it returns the same pointer.
func (b *Builder) Snapshot() *Snapshot {
	if len(b.dirty) == 0 && !b.settingsStale && !b.problemsStale {
		return b.last
	}
	next := new(Snapshot)
	*next = *b.last
	next.Node = b.nodeState()
	next.NodeObject = b.nodeFacts.NodeObject
	if b.settingsStale {
		b.updateSettings(next)
		b.settingsStale = false
	}
	b.updateServices(next)
	if b.problemsStale {
		next.Problems = slices.Concat(slices.Collect(maps.Values(b.problems))...)
		slices.SortFunc(next.Problems, compareProblems)
		b.problemsStale = false
	}
	b.last = next
	return next
}

// updateServices decides again about all dirty Services.
func (b *Builder) updateServices(next *Snapshot) {
	for _, r := range b.dirty {
		r.dirty = false
		b.updateService(r, next)
		b.forget(r)
	}
	b.dirty = nil // frees the memory: the list is longest at the start
	b.edit.done(next)
}

// updateService makes the service ports of a Service anew. Those that are equal to the ones before keep their pointers.
func (b *Builder) updateService(r *record, next *Snapshot) {
	was, now := r.was, r.service
	problems := problemList{object: r.object(), most: b.config.Budgets.Problems}
	if now != nil {
		problems.list = slices.Clone(now.rare.problems.list)
		for _, a := range now.addrs {
			if a.refused {
				problems.add(a.kind.field(), "%v is not served: %v", a.addr, b.addrScope.refusal(a))
			}
		}
	}
	var served [len(Families)]part
	for _, f := range Families {
		into := &b.edit.families[f]
		stay := map[portKey]bool{}
		if now.clusterIP(f).IsValid() {
			served[f] = now.part(f, &b.config, &problems)
			for _, p := range now.ports[:served[f].ports] {
				sp := &ServicePort{Name: now.portName(p), Family: f}
				sp.Frontends = b.frontends(now, f, p, served[f].addrs, &problems)
				b.decide(sp, now, served[f])
				into.setPort(sp)
				stay[p.key()] = true
			}
		}
		if was.clusterIP(f).IsValid() {
			for _, p := range was.ports {
				if !stay[p.key()] {
					into.deletePort(was.portName(p))
				}
			}
		}
		into.replaceClusterIP(was.clusterIP(f), now.clusterIP(f))
		next.families[f].Unserved += served[f].unserved - r.unserved[f]
		r.unserved[f] = served[f].unserved
	}
	b.setProblems(r.object(), problems)
	if h := b.healthCheck(now, served); h.Port != 0 {
		b.edit.health.Set(r.name, h)
	} else {
		b.edit.health.Delete(r.name)
	}
	r.was = now
}

// frontends returns the frontends that a port asks for and gets. It adds a problem for each that belongs to another.
func (b *Builder) frontends(s *service, f Family, p servicePort, addrs int, problems *problemList) (list []Frontend) {
	for fe := range s.frontends(f, p, addrs) {
		if of := b.claims[fe.VIP][0]; of == s { // s is in the list, too
			list = append(list, fe)
		} else if fe.Kind != NodePort || f == IPv4 || !s.clusterIP(IPv4).IsValid() { // else IPv4 has the same problem
			problems.add("", "%v %v of port %q belongs to %v", fe.Kind, fe.VIP, p.name, owner{of, fe.VIP, s})
		}
	}
	return list
}

// owner describes the owner of a VIP that another Service asks for and does not get.
type owner struct {
	*service
	v     VIP
	other *service
}

func (o owner) String() string {
	name, a := o.record.name, o.v.Addr
	switch {
	case o.clusterIP(FamilyOf(a)) == a && o.other.clusterIP(FamilyOf(a)) != a:
		return fmt.Sprintf("Service %v: it is the cluster IP of that Service", name)
	case o.created == o.other.created:
		return fmt.Sprintf("Service %v, which is as old and comes first by name", name)
	}
	return fmt.Sprintf("Service %v, which is older", name)
}

// decide makes all decisions about a service port that has its frontends.
func (b *Builder) decide(sp *ServicePort, s *service, served part) {
	l := b.lists(s.record, sp.Name, sp.Family)
	var needed [len(TrafficPolicies)]bool
	for i := range sp.Frontends {
		fe := &sp.Frontends[i]
		s.applyPolicy(fe, l.sizes)
		if sources := s.rare.sources[sp.Family]; fe.Kind == LoadBalancerIP && sources.restricted {
			fe.Restricted = true
			sp.SourceRanges = sources.ranges
			sp.NodeAllowed = contains(sp.SourceRanges, b.locality.primary[sp.Family])
		}
		for _, p := range TrafficPolicies {
			needed[p] = needed[p] || fe.Uses(p)
		}
	}
	sp.Endpoints = l.endpoints(needed)
	if slices.ContainsFunc(sp.Frontends, func(fe Frontend) bool { return fe.ShortCircuit }) {
		for i := range sp.Endpoints { // a pod of another node may come to this one, and is not masqueraded otherwise
			sp.Endpoints[i].Hairpin = true
		}
	}
	sp.RetryAfter = b.retryAfter(sp, s)
	sp.Affinity = s.rare.affinity
	if sp.Algorithm = served.algorithm; sp.Algorithm.HasTable() {
		sp.TableSize = int32(served.tableSize)
	}
	if sp.Name.Protocol != UDP {
		sp.ConnectionGrace = b.config.ConnectionGrace
		if s.rare.connectionGrace != nil {
			sp.ConnectionGrace = *s.rare.connectionGrace
		}
	}
	if _, ok := sp.EndsStale(); ok {
		sp.Draining = l.drained(sp.Endpoints)
	}
}

// Times without an answer after which a connection is retried: that of TCP, after which its first packet is repeated
// (RFC 6298), and the time-out of glibc's resolver (resolv.conf(5)), which asks again by the same socket.
const (
	RetryTCP = time.Second
	RetryDNS = 5 * time.Second
)

// retryAfter decides ServicePort.RetryAfter. Of UDP, only resolvers are known to repeat a question, so that an answer
// that takes long is not lost.
func (b *Builder) retryAfter(sp *ServicePort, s *service) time.Duration {
	on := b.config.ConnectionRetry
	if s.rare.connectionRetry != nil {
		on = *s.rare.connectionRetry
	}
	const dns = 53
	asks := func(fe Frontend) bool { return fe.VIP.Port == dns }
	switch {
	case on && sp.Name.Protocol == TCP:
		return RetryTCP
	case on && sp.Name.Protocol == UDP && slices.ContainsFunc(sp.Frontends, asks):
		return RetryDNS
	}
	return 0
}

// applyPolicy applies the traffic policies. If a Local one finds no endpoint on this node though others exist,
// connections are dropped: the load balancer will soon choose another node. selected are the sizes of the lists.
func (s *service) applyPolicy(fe *Frontend, selected [len(TrafficPolicies)]int) {
	isLocal := s.internalLocal
	if fe.Kind != ClusterIP {
		if isLocal = s.externalLocal; isLocal {
			fe.SourceNAT = MasqueradeNode
			fe.ShortCircuit = selected[Cluster] > 0
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

// lists finds both lists of endpoints for one port of a Service. The result is valid until the next call.
func (b *Builder) lists(r *record, name ServicePortName, f Family) lists {
	b.scratch = b.scratch[:0]
	_, end := r.offered(f, b.config.Budgets.Endpoints)
	for _, s := range r.slices[:end] {
		port, ok := s.port(name.Port, name.Protocol)
		if !ok || s.family != f {
			continue
		}
		for addr, c := range s.all(b.locality.zone) {
			b.scratch = append(b.scratch, Candidate{Addr: netip.AddrPortFrom(addr, port), Conditions: c})
		}
	}
	return listsOf(b.scratch)
}

// healthCheck returns the health check of a Service, which may be nil; with port 0, it has none.
func (b *Builder) healthCheck(s *service, served [len(Families)]part) (h HealthCheck) {
	if s == nil || s.healthCheckNodePort == 0 {
		return h
	}
	h.Port = s.healthCheckNodePort
	for _, f := range Families {
		if !s.clusterIP(f).IsValid() {
			continue
		}
		addrs := map[netip.Addr]struct{}{}
		for _, p := range s.ports[:served[f].ports] {
			for _, c := range b.lists(s.record, s.portName(p), f).candidates {
				if c.Has(Ready | OnThisNode) {
					addrs[c.Addr.Addr()] = struct{}{}
				}
			}
		}
		h.Families[f] = HealthCheckOfFamily{true, len(addrs)}
	}
	return h
}
