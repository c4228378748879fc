package model

import (
	"net/netip"
	"slices"
)

// Selection explains the endpoints of a service port in the current snapshot.
func (b *Builder) Selection(name ServicePortName, f Family) Selection {
	b.Snapshot()
	r := b.records[name.NamespacedName]
	if r == nil {
		return Selection{}
	}
	l := b.lists(r, name, f)
	selection := Selection{Hints: l.hints}
	for _, c := range l.candidates {
		selection.Candidates = append(selection.Candidates, c.explain())
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
		for a, e := range s.all("") {
			addr := netip.AddrPortFrom(a, port)
			i, _ := slices.BinarySearchFunc(sel.Candidates, addr, func(c Candidate, a netip.AddrPort) int {
				return c.Addr.Compare(a)
			})
			of := &sel.Candidates[i]
			if of.Terminating != e.has(terminating) {
				continue
			}
			if n := len(of.Slices); n == 0 || of.Slices[n-1] != other.Name {
				of.Slices = append(of.Slices, other.Name)
			}
		}
		return
	case slices.ContainsFunc(s.ports, func(p slicePort) bool { return p.name == name.Port }):
		other.Why = OtherProtocol
	}
	sel.Slices = append(sel.Slices, other)
}

// explain returns a candidate with its exclusions.
func (c candidate) explain() Candidate {
	return Candidate{
		Addr: c.addr, Local: c.has(local), Excluded: c.excluded,
		Ready: c.has(ready), Terminating: c.has(terminating), Draining: c.has(draining) && !c.has(ready),
		HintsNodes: c.has(hintsNodes), HintsZones: c.has(hintsZones),
	}
}

// Claimants returns the service ports that ask for a VIP. The first one gets it.
func (b *Builder) Claimants(v VIP) []ServicePortName {
	var list []ServicePortName
	for _, s := range b.claims.all(v) {
		for p := range s.wanting(v) {
			list = append(list, s.portName(p))
		}
	}
	return list
}
