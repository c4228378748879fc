package model

import (
	"cmp"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Family is an IP family.
type Family uint8

// The IP families. The values index arrays.
const (
	IPv4 Family = iota
	IPv6
)

// Families are all IP families.
var Families = [...]Family{IPv4, IPv6}

func (f Family) String() string {
	if f == IPv6 {
		return "IPv6"
	}
	return "IPv4"
}

// Unspecified returns the unspecified address, which a node port's [VIP] has.
func (f Family) Unspecified() netip.Addr {
	return [...]netip.Addr{IPv4: netip.IPv4Unspecified(), IPv6: netip.IPv6Unspecified()}[f]
}

// Loopback returns the loopback address: 127.0.0.1 or ::1.
func (f Family) Loopback() netip.Addr {
	return [...]netip.Addr{IPv4: netip.AddrFrom4([4]byte{127, 0, 0, 1}), IPv6: netip.IPv6Loopback()}[f]
}

// FamilyOf returns the family of a valid address that is not IPv4-mapped.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// Protocol is a transport protocol, numbered as IANA does.
type Protocol uint8

// The protocols a Service can have.
const (
	TCP  Protocol = 6
	UDP  Protocol = 17
	SCTP Protocol = 132
)

func (p Protocol) String() string {
	switch p {
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	case SCTP:
		return "sctp"
	}
	return fmt.Sprintf("protocol-%d", uint8(p))
}

// ParseProtocol reads the API's spelling: TCP (also for ""), UDP, SCTP.
func ParseProtocol(s string) (Protocol, error) {
	switch s {
	case "", "TCP":
		return TCP, nil
	case "UDP":
		return UDP, nil
	case "SCTP":
		return SCTP, nil
	}
	return 0, fmt.Errorf("%q is none of TCP, UDP, SCTP", s)
}

// VIP is an address that clients connect to. For node ports, where any address of
// the node will do, Addr is the unspecified address of the family.
type VIP struct {
	Addr     netip.Addr
	Protocol Protocol
	Port     uint16
}

// String is "address:port/protocol", or "port/protocol" for node ports.
func (v VIP) String() string {
	if v.Addr.IsUnspecified() {
		return fmt.Sprintf("%d/%v", v.Port, v.Protocol)
	}
	return netip.AddrPortFrom(v.Addr, v.Port).String() + "/" + v.Protocol.String()
}

// ServicePortName identifies one port of one Service. Protocol is part of it: a
// Service may have one name-less port for TCP and another for UDP.
type ServicePortName struct {
	NamespacedName
	Port     string // spec.ports[].name, may be empty
	Protocol Protocol
}

// String is "namespace/name:port", or without ":port" for a port without name.
func (n ServicePortName) String() string {
	if n.Port == "" {
		return n.NamespacedName.String()
	}
	return n.NamespacedName.String() + ":" + n.Port
}

func compareServicePortNames(a, b ServicePortName) int {
	return cmp.Or(
		strings.Compare(a.Namespace, b.Namespace),
		strings.Compare(a.Name, b.Name),
		strings.Compare(a.Port, b.Port),
		cmp.Compare(a.Protocol, b.Protocol),
	)
}

// ServicePort is one port of a Service in one IP family, with everything decided.
// It never changes. A later snapshot in which nothing about it differs holds the
// same pointer.
type ServicePort struct {
	Name      ServicePortName
	Family    Family
	Algorithm Algorithm // how one of the endpoints is chosen
	// NodeAllowed: this node is among SourceRanges. Its processes then may connect as well
	// if the frontend's own address is on an interface of the node, and so their source.
	NodeAllowed bool
	Frontends   []Frontend // what clients connect to, cluster IP first
	Endpoints   []Endpoint // who answers, sorted by address

	// Affinity is how long after its last new connection a client, known by its
	// address, is sent to the same endpoint again, by whatever frontend; 0 is never.
	Affinity time.Duration

	// ConnectionGrace is how long TCP and SCTP connections may go on to an endpoint that no
	// longer serves; 0 is as long as they like. See EndsStale.
	ConnectionGrace time.Duration
	// Draining are endpoints that get no new connections and still serve, sorted: what they
	// have goes on. It is only known where EndsStale says that it matters.
	Draining []netip.AddrPort

	// SourceRanges are who may connect to restricted frontends, sorted; what lies in
	// another is left out.
	SourceRanges []netip.Prefix
}

// Equal reports whether nothing about two service ports differs.
func (sp *ServicePort) Equal(o *ServicePort) bool {
	return sp.Name == o.Name && sp.Family == o.Family &&
		sp.Algorithm == o.Algorithm && sp.Affinity == o.Affinity && sp.NodeAllowed == o.NodeAllowed &&
		sp.ConnectionGrace == o.ConnectionGrace &&
		slices.Equal(sp.Frontends, o.Frontends) &&
		slices.Equal(sp.Endpoints, o.Endpoints) &&
		slices.Equal(sp.Draining, o.Draining) &&
		slices.Equal(sp.SourceRanges, o.SourceRanges)
}

// EndsStale reports whether connections to endpoints that no longer serve are ended, and how
// long after. UDP knows no end of a connection, so there a client would go on talking to an
// address that may be somebody else's by now. TCP's ends by itself, and a graceful shutdown
// must not be cut short.
func (sp *ServicePort) EndsStale() (after time.Duration, ok bool) {
	if sp.Name.Protocol == UDP {
		return 0, true
	}
	return sp.ConnectionGrace, sp.ConnectionGrace > 0
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

// Loopback returns the address at which a listener serves the service port's node port to
// processes of this node, where Settings.Localhost is set, and the traffic policy that
// selects its endpoints. If ok is false, no endpoint serves, and connections are refused. The
// address is invalid if there is no node port, or SCTP is its protocol.
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

// Allowed returns who may connect to a restricted frontend, sorted and apart.
func (sp *ServicePort) Allowed(fe Frontend) []netip.Prefix {
	if !sp.NodeAllowed {
		return sp.SourceRanges
	}
	self := netip.PrefixFrom(fe.VIP.Addr, fe.VIP.Addr.BitLen())
	return prefixesOf(sp.Family, append(slices.Clip(sp.SourceRanges), self))
}

// FrontendKind says where a frontend comes from.
type FrontendKind uint8

// The kinds of frontends, in the order in which they stand in a ServicePort.
const (
	ClusterIP FrontendKind = iota
	LoadBalancerIP
	ExternalIP
	NodePort
)

func (k FrontendKind) String() string {
	return [...]string{"cluster IP", "load-balancer address", "external IP", "node port"}[k]
}

// Frontend is one address, protocol and port of a service port, and what happens to
// new connections there.
type Frontend struct {
	VIP           VIP
	Kind          FrontendKind
	Action        Action
	TrafficPolicy TrafficPolicy // the endpoints that the traffic policy selects, even while Action is not Forward
	SourceNAT     SourceNAT

	// ShortCircuit: connections from this node and its pods are forwarded to the
	// Cluster endpoints whatever Action and TrafficPolicy say, as if they had gone out to the load
	// balancer and come in by a better node.
	ShortCircuit bool
	// Restricted: what is not in ServicePort.Allowed is dropped, before all else.
	Restricted bool
}

// Uses reports whether some connection to the frontend goes to the endpoints of a traffic
// policy.
func (fe Frontend) Uses(p TrafficPolicy) bool {
	return fe.ShortCircuit && p == Cluster || fe.Action == Forward && fe.TrafficPolicy == p
}

// Action is what happens to a new connection.
type Action uint8

// The actions.
const (
	// Forward sends it to one of the endpoints.
	Forward Action = iota
	// Reject refuses it, so that the client knows at once.
	Reject
	// Drop discards it, so that the client tries again elsewhere.
	Drop
)

func (a Action) String() string { return [...]string{"forward", "reject", "drop"}[a] }

// TrafficPolicy is an internal or external traffic policy of a Service. Each selects one of
// the two lists of endpoints that a service port has (KEP-1669).
type TrafficPolicy uint8

// The traffic policies.
const (
	// Cluster: from anywhere in the cluster, as far as the hints for this node and
	// its zone say.
	Cluster TrafficPolicy = iota
	// Local: on this node.
	Local
)

// TrafficPolicies are all traffic policies.
var TrafficPolicies = [...]TrafficPolicy{Cluster, Local}

func (p TrafficPolicy) String() string { return [...]string{"cluster", "local"}[p] }

// Algorithm is how one of several endpoints is chosen.
type Algorithm uint8

// The algorithms.
const (
	Random     Algorithm = iota // each with the same probability
	RoundRobin                  // one after the other
	SourceHash                  // by the client's address: the same one while their number stays
)

func (a Algorithm) String() string { return [...]string{"random", "round-robin", "source-hash"}[a] }

// ParseAlgorithm reads an algorithm's name; "" is Random.
func ParseAlgorithm(s string) (Algorithm, error) {
	for _, a := range [...]Algorithm{Random, RoundRobin, SourceHash} {
		if s == a.String() || s == "" {
			return a, nil
		}
	}
	return 0, fmt.Errorf("%q is none of random, round-robin, source-hash", s)
}

// SourceNAT says when a forwarded connection's source address is replaced by the
// node's. Apart from this, a connection that an endpoint on this node makes to
// itself through a Service always is (hairpin).
type SourceNAT uint8

// The kinds of source NAT.
const (
	// MasqueradeOutside: if the source is no pod (Settings.Pods), or for all with
	// Settings.MasqueradeAll. For cluster IPs.
	MasqueradeOutside SourceNAT = iota
	// MasqueradeAlways: replies must come back through this node.
	MasqueradeAlways
	// MasqueradeNode: if the source is this node itself, which may have taken an
	// address that no other machine can answer to.
	MasqueradeNode
)

// Endpoint is one address that answers for a service port.
type Endpoint struct {
	Addr  netip.AddrPort
	Local bool // on this node
	lists uint8
}

// NewEndpoint returns an endpoint that some traffic policies select.
func NewEndpoint(addr netip.AddrPort, local bool, in ...TrafficPolicy) Endpoint {
	e := Endpoint{Addr: addr, Local: local}
	for _, l := range in {
		e.lists |= 1 << l
	}
	return e
}

// In reports whether a traffic policy selects the endpoint.
func (e Endpoint) In(p TrafficPolicy) bool { return e.lists&(1<<p) != 0 }
