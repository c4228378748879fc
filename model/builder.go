package model

import (
	"fmt"
	"net/netip"
	"slices"
)

// Builder collects objects, in any order, and makes snapshots of them. What a
// snapshot costs follows what changed since the one before. A Builder is not safe for
// concurrent use.
type Builder struct {
	config Config

	services  map[NamespacedName]*service
	slices    map[NamespacedName]*endpointSlice
	byService map[NamespacedName][]*endpointSlice // sorted by name
	node      *Node
	hostAddrs []netip.Addr
	cidrs     map[string][]netip.Prefix
	claims    claims

	dirty       map[NamespacedName]struct{} // Services to look at again
	settingsOld bool                        // node, addresses or ServiceCIDRs changed
	problems    map[ObjectRef][]Problem
	problemsOld bool
	here        here
	clusterIPs  counted[netip.Addr]
	hairpins    counted[netip.Addr]
	endpoints   counted[VIP] // only with countsEndpoints
	programmed  map[NamespacedName]*programmed
	last        *Snapshot

	countsEndpoints bool // Config.DropInvalid, as it was for the last snapshot
	scratch         []candidate
}

// programmed is what a Service contributes to the last snapshot.
type programmed struct {
	ports      [len(Families)][]*ServicePort
	clusterIPs [len(Families)]netip.Addr
	health     *HealthCheck // nil: none
}

// here is what decisions about single Services depend on and is not in their objects.
type here struct {
	zone    string
	primary [len(Families)]netip.Addr // this node's
}

// counted counts how many Services or service ports need a key.
type counted[K comparable] map[K]int

// NewBuilder returns a Builder without objects.
func NewBuilder(c Config) *Builder {
	b := &Builder{
		config:      c,
		services:    map[NamespacedName]*service{},
		slices:      map[NamespacedName]*endpointSlice{},
		byService:   map[NamespacedName][]*endpointSlice{},
		cidrs:       map[string][]netip.Prefix{},
		claims:      claims{},
		dirty:       map[NamespacedName]struct{}{},
		problems:    map[ObjectRef][]Problem{},
		clusterIPs:  counted[netip.Addr]{},
		hairpins:    counted[netip.Addr]{},
		endpoints:   counted[VIP]{},
		programmed:  map[NamespacedName]*programmed{},
		settingsOld: true,
		last:        new(Snapshot),
	}
	for _, f := range Families {
		b.last.families[f].Family = f
	}
	return b
}

// SetService adds or replaces a Service.
func (b *Builder) SetService(in Service) {
	b.replaceService(in.NamespacedName, parseService(in))
}

// DeleteService removes a Service. It may be unknown.
func (b *Builder) DeleteService(name NamespacedName) { b.replaceService(name, nil) }

func (b *Builder) replaceService(name NamespacedName, s *service) {
	old := b.services[name]
	if old == nil && s == nil {
		return
	}
	b.markDirty(name)
	if old != nil {
		delete(b.services, name)
		for _, w := range old.wants() {
			for o := range b.claims.remove(w.vip, claimant{old, w.port}) {
				b.markDirty(o.name)
			}
		}
	}
	if s != nil {
		b.services[name] = s
		for _, w := range s.wants() {
			for o := range b.claims.add(w.vip, claimant{s, w.port}) {
				b.markDirty(o.name)
			}
		}
	}
}

func (b *Builder) markDirty(name NamespacedName) { b.dirty[name] = struct{}{} }

// SetEndpointSlice adds or replaces an EndpointSlice.
func (b *Builder) SetEndpointSlice(in EndpointSlice) {
	b.replaceSlice(in.NamespacedName, parseEndpointSlice(in, b.config.NodeName))
}

// DeleteEndpointSlice removes an EndpointSlice. It may be unknown.
func (b *Builder) DeleteEndpointSlice(name NamespacedName) { b.replaceSlice(name, nil) }

func (b *Builder) replaceSlice(name NamespacedName, s *endpointSlice) {
	compare := func(a *endpointSlice, name NamespacedName) int { return compareNames(a.name, name) }
	if old := b.slices[name]; old != nil {
		delete(b.slices, name)
		list := b.byService[old.service]
		if i, ok := slices.BinarySearchFunc(list, name, compare); ok {
			list = slices.Delete(list, i, i+1)
		}
		// A Service without slices must not keep its entry: clusters create and
		// delete Services for years.
		if len(list) == 0 {
			delete(b.byService, old.service)
		} else {
			b.byService[old.service] = list
		}
		b.markDirty(old.service)
	}
	var problems []Problem
	if s != nil {
		problems = s.problems
		b.slices[name] = s
		if s.service != (NamespacedName{}) {
			list := b.byService[s.service]
			i, _ := slices.BinarySearchFunc(list, name, compare)
			b.byService[s.service] = slices.Insert(list, i, s)
			b.markDirty(s.service)
		}
	}
	b.setProblems(ObjectRef{"EndpointSlice", name}, problems)
}

func compareNames(a, b NamespacedName) int {
	return compareServicePortNames(ServicePortName{NamespacedName: a}, ServicePortName{NamespacedName: b})
}

func (b *Builder) setProblems(ref ObjectRef, list []Problem) {
	if slices.Equal(b.problems[ref], list) {
		return
	}
	b.problemsOld = true
	if len(list) == 0 {
		delete(b.problems, ref)
	} else {
		b.problems[ref] = list
	}
}

// Snapshot returns the state of now. If nothing changed since the last call, it
// returns the same pointer.
func (b *Builder) Snapshot() *Snapshot {
	if len(b.dirty) == 0 && !b.settingsOld && !b.problemsOld {
		return b.last
	}
	next := new(Snapshot)
	*next = *b.last
	next.node = b.nodeState()
	if b.settingsOld {
		b.updateSettings(next)
		b.settingsOld = false
	}
	b.updateServices(next)
	if b.problemsOld {
		next.problems = b.allProblems()
		b.problemsOld = false
	}
	b.last = next
	return next
}

func (b *Builder) allProblems() []Problem {
	var all []Problem
	for _, list := range b.problems {
		all = append(all, list...)
	}
	slices.SortFunc(all, compareProblems)
	return all
}

// updateServices rebuilds the service ports of all dirty Services.
func (b *Builder) updateServices(next *Snapshot) {
	var edits [len(Families)]*familyEdit
	for _, f := range Families {
		edits[f] = newFamilyEdit(&next.families[f])
	}
	b.countEndpoints(edits)
	for name := range b.dirty {
		s := b.services[name]
		old, now := b.programmed[name], &programmed{}
		var problems []Problem
		if s != nil {
			problems = slices.Clip(s.problems)
			now, problems = b.program(s, old, problems)
		}
		b.setProblems(ObjectRef{"Service", name}, problems)
		for _, f := range Families {
			b.replaceProgrammed(edits[f], f, old, now)
		}
		next.replaceHealthCheck(name, old, now)
		if s == nil {
			delete(b.programmed, name)
		} else {
			b.programmed[name] = now
		}
	}
	clear(b.dirty)
	for _, e := range edits {
		e.done()
	}
}

// program decides what a Service contributes. Ports that come out as before keep
// their pointer.
func (b *Builder) program(s *service, old *programmed, problems []Problem) (*programmed, []Problem) {
	now := &programmed{}
	frontends := make([][len(Families)][]Frontend, len(s.ports))
	for _, w := range s.wants() {
		owner := b.claims.owner(w.vip)
		if owner != (claimant{s, w.port}) {
			whose := fmt.Sprintf("Service %v, which is older", owner.service.name)
			if owner.service.created.Equal(s.created) {
				whose = fmt.Sprintf("Service %v, which is as old and comes first by name", owner.service.name)
			}
			if owner.service == s {
				whose = fmt.Sprintf("its port %q, which stands before it", s.ports[owner.port].name.Port)
			}
			problem := Problem{
				Object:  ObjectRef{"Service", s.name},
				Message: fmt.Sprintf("%v %v of port %q belongs to %s", w.kind, w.vip, s.ports[w.port].name.Port, whose),
			}
			if !slices.Contains(problems, problem) { // a node port reads the same in both families
				problems = append(problems, problem)
			}
			continue
		}
		fs := &frontends[w.port][w.family]
		*fs = append(*fs, Frontend{Kind: w.kind, VIP: w.vip})
	}
	for _, f := range Families {
		if !s.families[f].clusterIP.IsValid() {
			continue
		}
		now.clusterIPs[f] = s.families[f].clusterIP
		for i, p := range s.ports {
			sp := &ServicePort{
				Name: p.name, Family: f, Frontends: frontends[i][f],
				Algorithm: b.config.Algorithm, Affinity: s.affinity,
			}
			if s.algorithm != nil {
				sp.Algorithm = *s.algorithm
			}
			b.decide(sp, s)
			now.ports[f] = append(now.ports[f], unchanged(sp, old))
		}
	}
	now.health = b.healthCheck(s, old)
	return now, problems
}

// decide says what happens to new connections at each frontend, and to whom they go.
func (b *Builder) decide(sp *ServicePort, s *service) {
	merged := merge(b.candidates(sp.Name, sp.Family))
	selected := choose(merged)
	var needed [len(Lists)]bool
	for i := range sp.Frontends {
		fe := &sp.Frontends[i]
		s.decideFrontend(fe, selected)
		if fe.Kind == LoadBalancerIP && s.families[sp.Family].restricted {
			fe.Restricted = true
			sp.SourceRanges = s.families[sp.Family].sourceRanges
			sp.NodeAllowed = contains(sp.SourceRanges, b.here.primary[sp.Family])
		}
		needed[fe.List] = needed[fe.List] || fe.Action == Forward
		needed[ClusterList] = needed[ClusterList] || fe.ShortCircuit
	}
	sp.Endpoints = selected.endpoints(merged, needed)
	if sp.Name.Protocol != UDP {
		sp.ConnectionGrace = b.config.ConnectionGrace
		if s.connectionGrace != nil {
			sp.ConnectionGrace = *s.connectionGrace
		}
	}
	if _, ok := sp.Forgets(); ok {
		sp.Draining = drained(merged, sp.Endpoints)
	}
}

// decideFrontend applies the traffic policies. Where a Local one finds no endpoint on
// this node though there are others, the connection is dropped and not refused: who
// sent it here will soon know better, and the client tries again.
func (s *service) decideFrontend(fe *Frontend, selected selection) {
	isLocal := s.internalLocal
	if fe.Kind != ClusterIP {
		if isLocal = s.externalLocal; isLocal {
			fe.SourceNAT = MasqueradeNode
			fe.ShortCircuit = selected[ClusterList] != 0
		} else {
			fe.SourceNAT = MasqueradeAlways
		}
	}
	if isLocal {
		fe.List = LocalList
	}
	switch {
	case selected[ClusterList] == 0:
		fe.Action = Reject
	case selected[fe.List] == 0:
		fe.Action = Drop
	}
}

// unchanged returns the old pointer if sp says the same.
func unchanged(sp *ServicePort, old *programmed) *ServicePort {
	if old == nil {
		return sp
	}
	for _, o := range old.ports[sp.Family] {
		if o.Name == sp.Name {
			if o.Equal(sp) {
				return o
			}
			break
		}
	}
	return sp
}

// candidates lists what all slices of a Service offer for one port. The result is
// valid until the next call.
func (b *Builder) candidates(name ServicePortName, f Family) []candidate {
	b.scratch = b.scratch[:0]
	for _, s := range b.byService[name.NamespacedName] {
		port, ok := s.port(name)
		if !ok || s.family != f {
			continue
		}
		for _, e := range s.endpoints {
			b.scratch = append(b.scratch, candidate{netip.AddrPortFrom(e.addr, port), e.in(b.here.zone)})
		}
	}
	return b.scratch
}
