package modeltest

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/vmapd/vmapd/model"
)

// Memory is what session affinity remembers: an endpoint of each client of a service port, for each traffic policy. A
// client with a first endpoint that both policies select has it for both. An endpoint that is remembered for a policy
// stays: a client that got it by one frontend, and another one by a frontend with the other policy, goes on with both.
//
// The zero value remembers nothing. A Memory never changes. It has no clock, and is valid for
// one snapshot: it does not notice that model.ServicePort.Affinity has passed, or that an endpoint
// was away for a while.
type Memory struct {
	endpoints map[visit]netip.AddrPort
}

// visit is a client of a service port that was sent to an endpoint of a traffic policy.
type visit struct {
	client netip.Addr
	port   model.ServicePortName
	policy model.TrafficPolicy
}

// Decide is [model.Decide] for a client that may have come before: then its endpoint is
// the only target.
func (m Memory) Decide(s *model.Snapshot, c model.Connection) model.Decision {
	d := model.Decide(s, c)
	if !remembers(d) {
		return d
	}
	got, ok := m.endpoints[visit{c.Source, d.Port.Name, d.TrafficPolicy}]
	if i := slices.IndexFunc(d.Targets, func(t model.Target) bool { return t.Addr == got }); ok && i >= 0 {
		d.Targets = d.Targets[i : i+1]
	}
	return d
}

// After returns what is remembered once a connection was sent to one of its targets.
func (m Memory) After(d model.Decision, to model.Target) Memory {
	if !remembers(d) {
		return m
	}
	next := maps.Clone(m.endpoints)
	if next == nil {
		next = map[visit]netip.AddrPort{}
	}
	for _, p := range model.TrafficPolicies {
		v := visit{d.Source, d.Port.Name, p}
		if _, ok := next[v]; !ok && to.In(p) {
			next[v] = to.Addr
		}
	}
	return Memory{next}
}

// remembers reports whether the connection's endpoint is remembered. The listener on loopback
// remembers its clients by itself.
func remembers(d model.Decision) bool {
	return d.Verdict == model.Forwarded && d.Why != model.LoopbackForwarder && d.Port.Affinity > 0
}
