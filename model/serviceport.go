package model

import (
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
	// SlotCount; 0 if it has none.
	TableSize int32
	Frontends []Frontend // cluster IP first
	Endpoints []Endpoint // sorted by address

	// Affinity is the time since a client's last new connection during which its next one, to
	// any frontend, goes to the same endpoint. A client is a source address. 0 is none.
	Affinity time.Duration

	// ConnectionGrace is the time after which TCP and SCTP connections to an endpoint that no
	// longer serves are ended; 0 is never. See EndsStale.
	ConnectionGrace time.Duration
	// Draining are endpoints that get no new connections but still serve those that they
	// have, sorted. It is empty unless EndsStale reports true.
	Draining []netip.AddrPort

	// RetryAfter is the time after which a client's packet that got no answer is a first packet again, if the client
	// repeats it: an endpoint is chosen anew. 0: the connection waits for its endpoint. An endpoint that needs longer to
	// answer is never reached. iptables and IPVS do not follow it.
	RetryAfter time.Duration

	// SourceRanges are the sources that restricted frontends allow, sorted. No range lies in another.
	SourceRanges []netip.Prefix
}

// Equal reports whether two service ports are equal in all fields.
func (sp *ServicePort) Equal(o *ServicePort) bool {
	return sp.Name == o.Name && sp.Family == o.Family &&
		sp.Algorithm == o.Algorithm && sp.TableSize == o.TableSize && sp.NodeAllowed == o.NodeAllowed &&
		sp.Affinity == o.Affinity && sp.ConnectionGrace == o.ConnectionGrace &&
		sp.RetryAfter == o.RetryAfter &&
		slices.Equal(sp.Frontends, o.Frontends) &&
		slices.Equal(sp.Endpoints, o.Endpoints) &&
		slices.Equal(sp.Draining, o.Draining) &&
		slices.Equal(sp.SourceRanges, o.SourceRanges)
}

// EndsStale reports whether connections to endpoints that no longer serve are ended, and after which time. A UDP flow
// has no end: its client would go on sending to an address that another pod may have by now.
func (sp *ServicePort) EndsStale() (after time.Duration, ok bool) {
	if sp.Name.Protocol == UDP {
		return 0, true
	}
	return sp.ConnectionGrace, sp.ConnectionGrace > 0
}

// Serves reports whether an address is an endpoint that gets new connections, or one that may keep those
// that it has. No service port, nil, serves none.
func (sp *ServicePort) Serves(a netip.AddrPort) bool {
	if sp == nil {
		return false
	}
	if _, ok := sp.Find(a); ok {
		return true
	}
	_, ok := slices.BinarySearchFunc(sp.Draining, a, netip.AddrPort.Compare)
	return ok
}

// Find returns the index in Endpoints of the one with an address.
func (sp *ServicePort) Find(a netip.AddrPort) (int, bool) {
	return slices.BinarySearchFunc(sp.Endpoints, a, func(e Endpoint, a netip.AddrPort) int { return e.Addr.Compare(a) })
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

// Loopback returns the address at which a listener serves the node port to processes of this node, and the traffic
// policy that selects its endpoints. If ok is false, connections are refused. The address is invalid without a node
// port, or with SCTP.
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
