package model

import (
	"net/netip"
	"slices"
)

// candidate is an endpoint that slices offer for a service port.
type candidate struct {
	addr netip.AddrPort
	conditions
	excluded [len(TrafficPolicies)]Exclusion // why each policy does not select it
}

// conditions are properties of an endpoint, as bits. A slice keeps those before hintsZones in a byte.
type conditions uint16

const (
	ready         conditions = 1 << iota
	serving                  // ready or not, it serves the connections that it has
	terminating              // ready or not
	local                    // on this node
	elsewhere                // on another one; neither: no slice names its Node
	hintsNodes               // it has hints for Nodes
	hintsThisNode            // … and one is for this Node
	hintsZones               // it has hints for zones
	hintsThisZone            // … and one is for this Node's zone

	draining = serving | terminating // the condition of those that are used while none is ready
)

func (c conditions) has(want conditions) bool { return c&want == want }

// lists are both lists of a service port's endpoints: the candidates that each traffic policy selects.
type lists struct {
	candidates []candidate // sorted, each address once
	sizes      [len(TrafficPolicies)]int
	hints      Hints // that made the Cluster list smaller
}

// listsOf leads from what the slices of a Service offer for a port, in any order, to both lists. A list has the
// candidates that nothing excludes, so that there is a reason for each of the others.
func listsOf(offered []candidate) lists {
	l := lists{candidates: merge(offered)}
	required := requiredConditions(l.candidates)
	switch {
	case required[Cluster].has(hintsThisNode):
		l.hints = NodeHints
	case required[Cluster].has(hintsThisZone):
		l.hints = ZoneHints
	}
	for i := range l.candidates {
		c := &l.candidates[i]
		for _, p := range TrafficPolicies {
			if c.excluded[p] = c.exclusion(p, required[p]); c.excluded[p] == NotExcluded {
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
func requiredConditions(candidates []candidate) (required [len(TrafficPolicies)]conditions) {
	var some conditions // of the ready ones
	every := ^conditions(0)
	for _, c := range candidates {
		switch {
		case c.has(ready):
			some |= c.conditions
			every &= c.conditions
			if c.has(local) {
				required[Local] = ready
			}
		case c.has(draining):
			if required[Cluster] = draining; c.has(local) && required[Local] == 0 {
				required[Local] = draining
			}
		}
	}
	switch {
	case !some.has(ready):
	case every.has(hintsNodes) && some.has(hintsThisNode):
		required[Cluster] = ready | hintsThisNode
	case every.has(hintsZones) && some.has(hintsThisZone):
		required[Cluster] = ready | hintsThisZone
	default:
		required[Cluster] = ready
	}
	return required
}

// exclusion returns the reason why a list of endpoints with some conditions does not have an endpoint.
func (c conditions) exclusion(p TrafficPolicy, required conditions) Exclusion {
	lacks := func(condition conditions) bool { return required.has(condition) && !c.has(condition) }
	switch {
	case !c.has(ready) && !c.has(draining):
		return NotServing
	case p == Local && !c.has(local):
		return NotLocal
	case lacks(ready):
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
func merge(candidates []candidate) []candidate {
	compare := func(a, b candidate) int { return a.addr.Compare(b.addr) }
	if !slices.IsSortedFunc(candidates, compare) {
		slices.SortFunc(candidates, compare)
	}
	merged := candidates[:0]
	for _, c := range candidates {
		n := len(merged)
		switch {
		case n == 0 || merged[n-1].addr != c.addr:
			merged = append(merged, c)
		case merged[n-1].has(terminating) == c.has(terminating):
			merged[n-1].conditions |= c.conditions
		case merged[n-1].has(terminating):
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
			if needed[p] && c.excluded[p] == NotExcluded {
				bits |= 1 << p
			}
		}
		if bits != 0 {
			list = append(list, Endpoint{c.addr, c.has(local), c.has(local) || !c.has(elsewhere), bits})
		}
	}
	return list
}

// drained returns the candidates that serve and are not among the endpoints.
func (l lists) drained(endpoints []Endpoint) []netip.AddrPort {
	var list []netip.AddrPort
	for _, c := range l.candidates {
		if !c.has(serving) && !c.has(ready) {
			continue
		}
		if len(endpoints) > 0 && endpoints[0].Addr == c.addr {
			endpoints = endpoints[1:]
			continue
		}
		list = append(list, c.addr)
	}
	return list
}
