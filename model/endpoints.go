package model

import (
	"net/netip"
	"slices"
)

// Candidate is an endpoint that slices offer for a service port.
type Candidate struct {
	Addr netip.AddrPort
	Conditions
	// Excluded is the reason why each traffic policy does not select it, even a policy that no frontend uses.
	Excluded [len(TrafficPolicies)]Exclusion
}

// Conditions are properties of an endpoint, as bits. A slice keeps those before hintsZones in a byte.
type Conditions uint16

// The conditions. Of several copies of an endpoint, those that terminate are left out beside one that does not.
const (
	Ready         Conditions = 1 << iota
	serving                  // ready or not, it serves the connections that it has
	Terminating              // ready or not
	OnThisNode               // on this node
	elsewhere                // on another one; neither: no slice names its Node
	HintsNodes               // it has hints for Nodes
	hintsThisNode            // … and one is for this Node
	HintsZones               // it has hints for zones
	hintsThisZone            // … and one is for this Node's zone

	draining = serving | Terminating // the condition of those that are used while none is ready
)

// Has reports whether all of some conditions are there.
func (c Conditions) Has(want Conditions) bool { return c&want == want }

// lists are both lists of a service port's endpoints: the candidates that each traffic policy selects.
type lists struct {
	candidates []Candidate // sorted, each address once
	sizes      [len(TrafficPolicies)]int
	hints      Hints // that made the Cluster list smaller
}

// listsOf leads from what the slices of a Service offer for a port, in any order, to both lists. A list has the
// candidates that nothing excludes, so that there is a reason for each of the others.
func listsOf(offered []Candidate) lists {
	l := lists{candidates: merge(offered)}
	required := requiredConditions(l.candidates)
	switch {
	case required[Cluster].Has(hintsThisNode):
		l.hints = NodeHints
	case required[Cluster].Has(hintsThisZone):
		l.hints = ZoneHints
	}
	for i := range l.candidates {
		c := &l.candidates[i]
		for _, p := range TrafficPolicies {
			if c.Excluded[p] = c.exclusion(p, required[p]); c.Excluded[p] == NotExcluded {
				l.sizes[p]++
			}
		}
	}
	return l
}

// requiredConditions returns the conditions that the endpoints of each list must have, among the merged candidates of a
// service port. 0: the list is empty. Those of the Local list are local, too.
//
// Either list has the ready endpoints or, if there are none, those that are terminating
// but still serving, so that restarting the last pod does not refuse connections that
// it could still answer (KEP-1669). The two fall back independently.
//
// Hints make the cluster list smaller only if each ready endpoint has some and one is for this Node: first those for
// Nodes, then those for zones (KEP-2433, KEP-3015). Otherwise the slices are about to change, or no endpoint is meant
// for this Node; then all endpoints are better than too few.
func requiredConditions(candidates []Candidate) (required [len(TrafficPolicies)]Conditions) {
	var some Conditions // of the ready ones
	every := ^Conditions(0)
	for _, c := range candidates {
		switch {
		case c.Has(Ready):
			some |= c.Conditions
			every &= c.Conditions
			if c.Has(OnThisNode) {
				required[Local] = Ready
			}
		case c.Has(draining):
			if required[Cluster] = draining; c.Has(OnThisNode) && required[Local] == 0 {
				required[Local] = draining
			}
		}
	}
	switch {
	case !some.Has(Ready):
	case every.Has(HintsNodes) && some.Has(hintsThisNode):
		required[Cluster] = Ready | hintsThisNode
	case every.Has(HintsZones) && some.Has(hintsThisZone):
		required[Cluster] = Ready | hintsThisZone
	default:
		required[Cluster] = Ready
	}
	return required
}

// exclusion returns the reason why a list of endpoints with some conditions does not have an endpoint.
func (c Conditions) exclusion(p TrafficPolicy, required Conditions) Exclusion {
	lacks := func(condition Conditions) bool { return required.Has(condition) && !c.Has(condition) }
	switch {
	case !c.Has(Ready) && !c.Has(draining):
		return NotServing
	case p == Local && !c.Has(OnThisNode):
		return NotLocal
	case lacks(Ready):
		return ReadyOnesExist
	case lacks(hintsThisNode):
		return HintsOtherNodes
	case lacks(hintsThisZone):
		return HintsOtherZones
	}
	return NotExcluded
}

// merge sorts candidates and joins those of the same address, in place: while slices
// are being rebalanced, an endpoint may be in several. It has the conditions of each copy, but
// if one does not terminate, those that do are of an older pod, which had the address before.
func merge(candidates []Candidate) []Candidate {
	slices.SortFunc(candidates, func(a, b Candidate) int { return a.Addr.Compare(b.Addr) })
	merged := candidates[:0]
	for _, c := range candidates {
		n := len(merged)
		switch {
		case n == 0 || merged[n-1].Addr != c.Addr:
			merged = append(merged, c)
		case merged[n-1].Has(Terminating) == c.Has(Terminating):
			merged[n-1].Conditions |= c.Conditions
		case merged[n-1].Has(Terminating):
			merged[n-1] = c
		}
	}
	return merged
}

// endpoints returns the candidates that are in one of the lists that some frontend needs.
func (l lists) endpoints(needed [len(TrafficPolicies)]bool) []Endpoint {
	most := 0
	for _, p := range TrafficPolicies {
		if needed[p] {
			most += l.sizes[p]
		}
	}
	if most == 0 {
		return nil
	}
	list := make([]Endpoint, 0, min(most, len(l.candidates)))
	for _, c := range l.candidates {
		bits := uint8(0)
		for _, p := range TrafficPolicies {
			if needed[p] && c.Excluded[p] == NotExcluded {
				bits |= 1 << p
			}
		}
		if bits != 0 {
			list = append(list, Endpoint{c.Addr, c.Has(OnThisNode), c.Has(OnThisNode) || !c.Has(elsewhere), bits})
		}
	}
	return list
}

// drained returns the candidates that serve and are not among the endpoints.
func (l lists) drained(endpoints []Endpoint) []netip.AddrPort {
	var list []netip.AddrPort
	for _, c := range l.candidates {
		if !c.Has(serving) && !c.Has(Ready) {
			continue
		}
		if len(endpoints) > 0 && endpoints[0].Addr == c.Addr {
			endpoints = endpoints[1:]
			continue
		}
		list = append(list, c.Addr)
	}
	return list
}
