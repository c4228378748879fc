package model

import (
	"net/netip"
	"slices"
)

// candidate is an endpoint that a slice offers for a service port.
type candidate struct {
	addr netip.AddrPort
	conditions
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

// selection has the conditions that the endpoints of each list must have. 0 selects none.
type selection [len(TrafficPolicies)]conditions

func (s selection) has(c conditions, l TrafficPolicy) bool { return s[l] != 0 && c.has(s[l]) }

// choose finds both lists among the merged candidates of a service port.
//
// Either list has the ready endpoints or, if there are none, those that are terminating
// but still serving, so that restarting the last pod does not refuse connections that
// it could still answer (KEP-1669). The two fall back independently.
//
// Hints make the cluster list smaller only if each ready endpoint has some and one is
// for this Node: first those for Nodes, then those for zones (KEP-2433, KEP-3015).
// Otherwise the slices are about to change, or no endpoint is meant for this Node; then
// all endpoints are better than too few.
func choose(candidates []candidate) selection {
	var s selection
	var some conditions // of the ready ones
	every := ^conditions(0)
	for _, c := range candidates {
		switch {
		case c.has(ready):
			some |= c.conditions
			every &= c.conditions
			if c.has(local) {
				s[Local] = ready | local
			}
		case c.has(draining):
			if s[Cluster] = draining; c.has(local) && s[Local] == 0 {
				s[Local] = draining | local
			}
		}
	}
	switch {
	case !some.has(ready):
	case every.has(hintsNodes) && some.has(hintsThisNode):
		s[Cluster] = ready | hintsThisNode
	case every.has(hintsZones) && some.has(hintsThisZone):
		s[Cluster] = ready | hintsThisZone
	default:
		s[Cluster] = ready
	}
	return s
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

// endpoints returns the merged candidates that are in one of the lists that some
// frontend needs.
func (s selection) endpoints(merged []candidate, needed [len(TrafficPolicies)]bool) []Endpoint {
	for _, l := range TrafficPolicies {
		if !needed[l] {
			s[l] = 0
		}
	}
	in := func(c candidate) bool { return s.has(c.conditions, Cluster) || s.has(c.conditions, Local) }
	count := 0
	for _, c := range merged {
		if in(c) {
			count++
		}
	}
	if count == 0 {
		return nil
	}
	list := make([]Endpoint, 0, count)
	for _, c := range merged {
		if !in(c) {
			continue
		}
		e := Endpoint{Addr: c.addr, Local: c.has(local), Hairpin: c.has(local) || !c.has(elsewhere)}
		for _, l := range TrafficPolicies {
			if s.has(c.conditions, l) {
				e.lists |= 1 << l
			}
		}
		list = append(list, e)
	}
	return list
}

// drained returns the merged candidates that serve and are not among the chosen ones.
func drained(merged []candidate, chosen []Endpoint) []netip.AddrPort {
	var list []netip.AddrPort
	for _, c := range merged {
		if !c.has(serving) && !c.has(ready) {
			continue
		}
		if len(chosen) > 0 && chosen[0].Addr == c.addr {
			chosen = chosen[1:]
			continue
		}
		list = append(list, c.addr)
	}
	return list
}
