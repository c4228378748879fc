package model

import (
	"net/netip"
	"slices"
)

// Selection explains which endpoints the traffic policies select for a service port. A snapshot has only the result.
type Selection struct {
	// Candidates are the endpoints that slices offer for the port, sorted, each address once.
	Candidates []Candidate
	// Offers are the slices that offer each candidate, by its address: several while slices are being rebalanced.
	Offers map[netip.AddrPort][]NamespacedName
	// Slices are the Service's slices that offer nothing for the port, sorted by name.
	Slices []OtherSlice
	// Hints are the hints that made the Cluster list smaller.
	Hints Hints
}

// Exclusion is the reason why a traffic policy does not select a candidate.
type Exclusion uint8

// The exclusions.
const (
	NotExcluded     Exclusion = iota
	NotServing                // neither ready, nor terminating but still serving
	NotLocal                  // not on this node; Local only
	ReadyOnesExist            // it is terminating, and others are ready
	HintsOtherNodes           // its hints are for other Nodes; Cluster only
	HintsOtherZones           // its hints are for other zones; Cluster only
)

// Hints is the kind of topology hints in use.
type Hints uint8

// The hints.
const (
	NoHints   Hints = iota // hints exclude no endpoint
	NodeHints              // hints.forNodes
	ZoneHints              // hints.forZones
)

// OtherSlice is a slice that offers nothing for a service port.
type OtherSlice struct {
	Name      NamespacedName
	Why       Mismatch
	Endpoints int // their number
}

// Mismatch is the reason why a slice offers nothing for a service port.
type Mismatch uint8

// The mismatches.
const (
	OtherFamily   Mismatch = iota // its addresses are of the other IP family
	NoPort                        // it has no port of this name
	OtherProtocol                 // its port of this name is for another protocol
	OverBudget                    // the Service has too many endpoints, see Budgets.Endpoints
)

// Selection explains the endpoints of a service port in the current snapshot.
func (b *Builder) Selection(name ServicePortName, f Family) Selection {
	b.Snapshot()
	r := b.records[name.NamespacedName]
	if r == nil {
		return Selection{}
	}
	l := b.lists(r, name, f)
	selection := Selection{
		Candidates: slices.Clone(l.candidates), Offers: map[netip.AddrPort][]NamespacedName{}, Hints: l.hints,
	}
	_, left := r.offered(f, b.config.Budgets.Endpoints)
	over := false
	for _, s := range r.slices {
		over = over || s == left
		selection.addSlice(s, name, f, over)
	}
	return selection
}

// addSlice adds a slice to its candidates, or to Slices if it has none.
func (sel *Selection) addSlice(s *endpointSlice, name ServicePortName, f Family, over bool) {
	other := OtherSlice{Name: NamespacedName{name.Namespace, s.name}, Why: NoPort, Endpoints: s.len()}
	port, ok := s.port(name.Port, name.Protocol)
	switch {
	case s.family != f:
		other.Why = OtherFamily
	case over:
		other.Why = OverBudget
	case ok:
		for a, conditions := range s.all("") {
			addr := netip.AddrPortFrom(a, port)
			i, _ := slices.BinarySearchFunc(sel.Candidates, Candidate{Addr: addr}, Candidate.compare)
			isCopy := sel.Candidates[i].Has(Terminating) == conditions.Has(Terminating)
			if isCopy && !slices.Contains(sel.Offers[addr], other.Name) {
				sel.Offers[addr] = append(sel.Offers[addr], other.Name)
			}
		}
		return
	case slices.ContainsFunc(s.ports, func(p slicePort) bool { return p.name == name.Port }):
		other.Why = OtherProtocol
	}
	sel.Slices = append(sel.Slices, other)
}

// Claimants returns the service ports that ask for a VIP. The first one gets it.
func (b *Builder) Claimants(v VIP) []ServicePortName {
	var list []ServicePortName
	for _, s := range b.claims[v] {
		for _, p := range s.ports {
			number := p.port
			if v.Addr.IsUnspecified() {
				number = p.nodePort
			}
			if number == v.Port && p.protocol == v.Protocol {
				list = append(list, s.portName(p))
			}
		}
	}
	return list
}
