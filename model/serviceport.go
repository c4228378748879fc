package model

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"time"
)

// ServicePort is one port of a Service in one IP family, with all decisions made.
// It never changes. A later snapshot in which it is equal holds the same pointer.
type ServicePort struct {
	Name      ServicePortName
	Family    Family
	Algorithm Algorithm // chooses one of the endpoints
	// NodeAllowed: the node's primary address is in SourceRanges. A frontend's address may be
	// on an interface of the node and the source of its processes; it is allowed then as well.
	NodeAllowed bool
	// TableSize is the number of slots of the algorithm's lookup tables while the endpoints are few, see
	// Slots; 0 if it has none.
	TableSize int32
	Frontends []Frontend // cluster IP first
	Endpoints []Endpoint // sorted by address
	// Uncounted: connections are not counted. The port is beyond Budgets.Counters.
	Uncounted bool

	// Affinity is the time since a client's last new connection during which its next one, to
	// any frontend, goes to the same endpoint. A client is a source address. 0 is none.
	Affinity time.Duration

	// ConnectionGrace is the time after which TCP and SCTP connections to an endpoint that no
	// longer serves are ended; 0 is never. See EndsStale.
	ConnectionGrace time.Duration
	// Draining are endpoints that get no new connections but still serve those that they
	// have, sorted. It is empty unless EndsStale reports true.
	Draining []netip.AddrPort

	// SourceRanges are the sources that restricted frontends allow, sorted. No range lies in
	// another.
	SourceRanges []netip.Prefix
}

// Equal reports whether two service ports are equal in all fields.
func (sp *ServicePort) Equal(o *ServicePort) bool {
	return sp.Name == o.Name && sp.Family == o.Family &&
		sp.Algorithm == o.Algorithm && sp.TableSize == o.TableSize && sp.Affinity == o.Affinity && sp.NodeAllowed == o.NodeAllowed &&
		sp.ConnectionGrace == o.ConnectionGrace &&
		sp.Uncounted == o.Uncounted &&
		slices.Equal(sp.Frontends, o.Frontends) &&
		slices.Equal(sp.Endpoints, o.Endpoints) &&
		slices.Equal(sp.Draining, o.Draining) &&
		slices.Equal(sp.SourceRanges, o.SourceRanges)
}

// EndsStale reports whether connections to endpoints that no longer serve are ended, and
// after which time. A UDP flow has no end: its client would go on sending to an address that
// another pod may have by now. TCP connections end by themselves, and a graceful shutdown
// must not be cut short.
func (sp *ServicePort) EndsStale() (after time.Duration, ok bool) {
	if sp.Name.Protocol == UDP {
		return 0, true
	}
	return sp.ConnectionGrace, sp.ConnectionGrace > 0
}

// NoLocalEndpoints reports whether a Local policy, for connections from inside or from
// outside, finds no endpoint on this node though there are others.
func (sp *ServicePort) NoLocalEndpoints() (internal, external bool) {
	for _, fe := range sp.Frontends {
		if fe.Action == Drop && fe.TrafficPolicy == Local {
			internal = internal || fe.Kind == ClusterIP
			external = external || fe.Kind != ClusterIP
		}
	}
	return internal, external
}

// In returns the endpoints that a traffic policy selects, in their order.
func (sp *ServicePort) In(p TrafficPolicy) iter.Seq[Endpoint] {
	return func(yield func(Endpoint) bool) {
		for _, e := range sp.Endpoints {
			if e.In(p) && !yield(e) {
				return
			}
		}
	}
}

// Count returns how many endpoints a traffic policy selects.
func (sp *ServicePort) Count(p TrafficPolicy) int {
	n := 0
	for range sp.In(p) {
		n++
	}
	return n
}

// Loopback returns the address at which a listener serves the service port's node port to
// processes of this node, where Settings.Localhost is set, and the traffic policy that
// selects its endpoints. If ok is false, no endpoint serves, and connections are refused. The
// address is invalid if there is no node port, or SCTP is its protocol.
func (sp *ServicePort) Loopback() (at netip.AddrPort, p TrafficPolicy, ok bool) {
	for _, fe := range sp.Frontends {
		if fe.Kind != NodePort || fe.VIP.Protocol == SCTP {
			continue
		}
		at = netip.AddrPortFrom(sp.Family.Loopback(), fe.VIP.Port)
		if fe.ShortCircuit {
			return at, Cluster, true
		}
		return at, fe.TrafficPolicy, fe.Action == Forward
	}
	return at, p, false
}

// Allowed returns the sources that a restricted frontend allows, as SourceRanges has them.
func (sp *ServicePort) Allowed(fe Frontend) []netip.Prefix {
	if !sp.NodeAllowed {
		return sp.SourceRanges
	}
	self := netip.PrefixFrom(fe.VIP.Addr, fe.VIP.Addr.BitLen())
	return prefixesOf(sp.Family, append(slices.Clip(sp.SourceRanges), self))
}

// updateService makes the service ports of a Service anew. Those that are equal to the ones
// before keep their pointers.
func (b *Builder) updateService(e *edit, r *record) {
	was, now := r.was, r.service
	problems := problemList{object: r.object(), most: b.config.Budgets.Problems}
	if now != nil {
		problems.list = slices.Clone(now.rare.problems.list)
		now.refusals(&problems)
		b.reportHealthCheck(now, &problems)
		if most := b.config.Budgets.Counters; b.config.ServiceCounters && len(now.ports) > most {
			problems.over(CountersBudget, fmt.Sprintf("spec.ports[%d]", most), "more than %d ports: connections to this one and those after it are not counted", most)
		}
	}
	had := was.portKeys()
	var served [len(Families)]part
	for _, f := range Families {
		into := &e.families[f]
		var stay keySet[portKey]
		if now.clusterIP(f).IsValid() {
			served[f] = b.part(now, f, &problems)
			for i, p := range now.ports[:served[f].ports] {
				sp := &ServicePort{Name: now.portName(p), Family: f, Uncounted: i >= b.config.Budgets.Counters}
				sp.Frontends = b.frontends(now, f, p, served[f].addrs, &problems)
				b.decide(sp, now, served[f].algorithm)
				var old *ServicePort
				if had.has(p.key()) {
					old, _ = into.ports.Get(&sp.Name)
				}
				b.setPort(into, old, sp)
				stay.add(p.key())
			}
		}
		if was.clusterIP(f).IsValid() {
			for _, p := range was.ports {
				if !stay.has(p.key()) {
					b.deletePort(into, was.portName(p))
				}
			}
		}
		b.replaceClusterIP(into, was.clusterIP(f), now.clusterIP(f))
		into.unserved += b.setUnserved(r, f, served[f].unserved)
	}
	b.setProblems(r.object(), problems)
	e.setHealthCheck(r.name, b.healthCheck(now, served))
	r.was = now
}

// frontends returns the frontends that a port asks for and gets. It adds a problem for each
// that belongs to another.
func (b *Builder) frontends(s *service, f Family, p servicePort, addrs int, problems *problemList) []Frontend {
	list := b.scratchFrontends[:0]
	for fe := range s.frontends(f, p, addrs) {
		if b.owns(fe.VIP, s, p) {
			list = append(list, fe)
			continue
		}
		if !b.reported(fe, s, p) {
			problems.add("", "%v %v of port %q belongs to %v", fe.Kind, fe.VIP, p.name, owner{b, fe.VIP, s})
		}
	}
	b.scratchFrontends = list
	return append([]Frontend(nil), list...)
}

// owns reports whether a VIP that a port asks for belongs to it.
func (b *Builder) owns(v VIP, s *service, p servicePort) bool {
	taken := p.portTaken
	if v.Addr.IsUnspecified() {
		taken = p.nodePortTaken
	}
	return b.claims.owners[v] == s && !taken
}

// reported reports whether a frontend is a node port whose problem reads the same in IPv4.
func (b *Builder) reported(fe Frontend, s *service, p servicePort) bool {
	if fe.Kind != NodePort || !fe.VIP.Addr.Is6() || !s.clusterIP(IPv4).IsValid() {
		return false
	}
	v := fe.VIP
	v.Addr = IPv4.Unspecified()
	return !b.owns(v, s, p) && b.claims.owners[v] == b.claims.owners[fe.VIP]
}

// owner describes the owner of a VIP that a port of a Service asks for and does not get.
type owner struct {
	b *Builder
	v VIP
	s *service
}

func (o owner) String() string {
	s, owner := o.s, o.b.claims.owners[o.v]
	if owner == s {
		for first := range s.wanting(o.v) {
			return fmt.Sprintf("its port %q, which stands before it", first.name)
		}
	}
	if a := o.v.Addr; owner.clusterIP(FamilyOf(a)) == a && s.clusterIP(FamilyOf(a)) != a {
		return fmt.Sprintf("Service %v, whose cluster IP it is", owner.record.name)
	}
	if owner.created == s.created {
		return fmt.Sprintf("Service %v, which is as old and comes first by name", owner.record.name)
	}
	return fmt.Sprintf("Service %v, which is older", owner.record.name)
}

// decide makes all decisions about a service port that has its frontends.
func (b *Builder) decide(sp *ServicePort, s *service, a Algorithm) {
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
	sp.Affinity = s.rare.affinity
	if sp.Algorithm = a; a.HasTable() {
		sp.TableSize = int32(b.tableSize())
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

// applyPolicy applies the traffic policies. If a Local one finds no endpoint on this
// node though others exist, connections are dropped and not rejected: the load balancer
// will soon choose another node, and the client tries again. selected are the sizes of the lists.
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
	rest := b.config.Budgets.Endpoints
	for _, s := range r.slices {
		if s.family != f {
			continue
		}
		if rest -= s.weight(); rest < 0 {
			break
		}
		port, ok := s.port(name.Port, name.Protocol)
		if !ok {
			continue
		}
		for addr, c := range s.all(b.locality.zone) {
			b.scratch = append(b.scratch, candidate{addr: netip.AddrPortFrom(addr, port), conditions: c})
		}
	}
	return listsOf(b.scratch)
}
