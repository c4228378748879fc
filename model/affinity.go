package model

import (
	"maps"
	"net/netip"
	"slices"
)

// Memory is what session affinity remembers: the last endpoint of each client of a service
// port, for each traffic policy that selects the endpoint. An endpoint that only one of the
// policies selects changes nothing for the other, whose connections it can't serve.
//
// The zero value remembers nothing. A Memory never changes. It has no clock, and is valid for
// one snapshot: it does not notice that ServicePort.Affinity has passed, or that an endpoint
// was away for a while.
type Memory struct {
	endpoints map[visit]netip.AddrPort
}

// visit is a client of a service port that was sent to an endpoint of a traffic policy.
type visit struct {
	client netip.Addr
	port   ServicePortName
	policy TrafficPolicy
}

// Decide is the function Decide for a client that may have come before: then its endpoint is
// the only target.
func (m Memory) Decide(s *Snapshot, c Connection) Decision {
	d := Decide(s, c)
	if !d.remembers() {
		return d
	}
	got, ok := m.endpoints[visit{c.Source, d.Port.Name, d.TrafficPolicy}]
	if i := slices.IndexFunc(d.Targets, func(t Target) bool { return t.Addr == got }); ok && i >= 0 {
		d.Targets = d.Targets[i : i+1]
	}
	return d
}

// After returns what is remembered once a connection was sent to one of its targets.
func (m Memory) After(d Decision, to Target) Memory {
	if !d.remembers() {
		return m
	}
	next := maps.Clone(m.endpoints)
	if next == nil {
		next = map[visit]netip.AddrPort{}
	}
	for _, p := range TrafficPolicies {
		if to.In(p) {
			next[visit{d.Source, d.Port.Name, p}] = to.Addr
		}
	}
	return Memory{next}
}

// remembers reports whether the connection's endpoint is remembered. The listener on loopback
// remembers its clients by itself.
func (d Decision) remembers() bool {
	return d.Verdict == Forwarded && d.Why != LoopbackForwarder && d.Port.Affinity > 0
}
