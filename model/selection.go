package model

import "slices"

// Selection explains which endpoints the traffic policies select for a service port. A snapshot has only the result.
type Selection struct {
	// Candidates are the endpoints that slices offer for the port, sorted, each address once.
	Candidates []Candidate
	// Slices of the family that offer nothing, sorted by name: NoPort have no port of the name and protocol, and
	// OverBudget are beyond Budgets.Endpoints.
	NoPort, OverBudget []NamespacedName
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

// Selection explains the endpoints of a service port in the current snapshot.
func (b *Builder) Selection(name ServicePortName, f Family) Selection {
	b.Snapshot()
	r := b.records[name.NamespacedName]
	if r == nil {
		return Selection{}
	}
	l := b.lists(r, name, f)
	selection := Selection{Candidates: slices.Clone(l.candidates), Hints: l.hints}
	_, end := r.offered(f, b.config.Budgets.Endpoints)
	for i, s := range r.slices {
		other := NamespacedName{name.Namespace, s.name}
		switch _, ok := s.port(name.Port, name.Protocol); {
		case s.family != f:
		case i >= end:
			selection.OverBudget = append(selection.OverBudget, other)
		case !ok:
			selection.NoPort = append(selection.NoPort, other)
		}
	}
	return selection
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
