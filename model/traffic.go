package model

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
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

// Protocol is a transport protocol, with IANA's number.
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

// VIP is an address, protocol and port that clients connect to. A node port has the
// unspecified address of the family, see [Settings.NodePortAddrs].
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

func compareServicePortNames(a, b *ServicePortName) int {
	return cmp.Or(
		compareNames(a.NamespacedName, b.NamespacedName),
		strings.Compare(a.Port, b.Port),
		cmp.Compare(a.Protocol, b.Protocol),
	)
}

// FrontendKind is the field of a Service that a frontend comes from.
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

// field returns the path of the field in a Service.
func (k FrontendKind) field() string {
	return [...]string{"spec.clusterIPs", "status.loadBalancer.ingress", "spec.externalIPs", "spec.ports"}[k]
}

// Frontend is one address, protocol and port of a service port, and the rules for new connections to it.
type Frontend struct {
	VIP           VIP
	Kind          FrontendKind
	Action        Action
	TrafficPolicy TrafficPolicy // the endpoints that the traffic policy selects, even while Action is not Forward
	SourceNAT     SourceNAT

	// ShortCircuit: connections from this node and its pods are forwarded to the Cluster endpoints, regardless of Action
	// and TrafficPolicy, as if they had gone out to the load balancer and come back by a node that has endpoints.
	ShortCircuit bool
	// Restricted: connections from sources that are not in ServicePort.Allowed are dropped.
	// All other fields apply to the rest.
	Restricted bool
}

// Uses reports whether some connection to the frontend goes to the endpoints of a traffic policy.
func (fe Frontend) Uses(p TrafficPolicy) bool {
	return fe.ShortCircuit && p == Cluster || fe.Action == Forward && fe.TrafficPolicy == p
}

// Action is the treatment of new connections to a frontend.
type Action uint8

// The actions.
const (
	// Forward sends them to one of the endpoints.
	Forward Action = iota
	// Reject answers with a TCP reset or an ICMP error, so that the client fails at once.
	Reject
	// Drop discards them, so that the client tries again.
	Drop
)

func (a Action) String() string { return [...]string{"forward", "reject", "drop"}[a] }

// TrafficPolicy is an internal or external traffic policy of a Service. Each selects one of
// the two lists of endpoints that a service port has (KEP-1669).
type TrafficPolicy uint8

// The traffic policies.
const (
	Cluster TrafficPolicy = iota // endpoints on any node, as topology hints allow
	Local                        // endpoints on this node
)

// TrafficPolicies are all traffic policies.
var TrafficPolicies = [...]TrafficPolicy{Cluster, Local}

// Algorithm chooses one of several endpoints.
type Algorithm uint8

// The algorithms.
const (
	Random     Algorithm = iota // each with the same probability
	Maglev                      // by the client's address and a lookup table, which is the same on all nodes
	MaglevPort                  // the same by the client's address and port
)

// algorithms are the names of all algorithms.
var algorithms = [...]string{Random: "random", Maglev: "maglev", MaglevPort: "maglev-port"}

func (a Algorithm) String() string { return algorithms[a] }

// HasTable reports whether the algorithm chooses by [ServicePort.Table].
func (a Algorithm) HasTable() bool { return a == Maglev || a == MaglevPort }

// ParseAlgorithm reads an algorithm's name; "" is Random. Earlier versions had two more, which the one that is
// most alike replaces; a note says so.
func ParseAlgorithm(s string) (a Algorithm, note string, err error) {
	switch s {
	case "round-robin":
		return Random, `"round-robin" is not available: random chooses`, nil
	case "source-hash":
		return Maglev, `"source-hash" is not available: maglev chooses`, nil
	}
	i := slices.Index(algorithms[:], cmp.Or(s, Random.String()))
	if i < 0 {
		return 0, "", fmt.Errorf("%q is none of %s", s, strings.Join(algorithms[:], ", "))
	}
	return Algorithm(i), "", nil
}

// SourceNAT says when a forwarded connection is masqueraded, that is, gets the node's address as its source. A
// connection of an endpoint to itself by this node ([Endpoint.Hairpin]) always is.
type SourceNAT uint8

// The kinds of source NAT.
const (
	// MasqueradeOutside: if the source is no pod (Settings.Pods), or always with Settings.MasqueradeAll. For cluster IPs.
	MasqueradeOutside SourceNAT = iota
	// MasqueradeAlways: always, so that replies come back through this node.
	MasqueradeAlways
	// MasqueradeNode: if the source is this node, which may have chosen an address that is unreachable for other machines.
	MasqueradeNode
)

// Endpoint is one address and port that serves a service port.
type Endpoint struct {
	Addr  netip.AddrPort
	Local bool // on this node
	// Hairpin: it may connect to itself by this node: it is here, no slice names its Node, or external traffic of pods
	// keeps its source (Frontend.ShortCircuit).
	Hairpin bool
	lists   uint8
}

// In reports whether a traffic policy selects the endpoint.
func (e Endpoint) In(p TrafficPolicy) bool { return e.lists&(1<<p) != 0 }
