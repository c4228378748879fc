package model

import (
	"cmp"
	"fmt"
	"net/netip"
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
	Frontends []Frontend // what clients connect to, cluster IP first
	Endpoints []Endpoint // who answers, sorted by address
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
	Kind      FrontendKind
	VIP       VIP
	Action    Action
	SourceNAT SourceNAT
}

// Action is what happens to a new connection.
type Action uint8

// The actions.
const (
	// Forward sends it to one of the endpoints, each with the same probability.
	Forward Action = iota
	// Reject refuses it, so that the client knows at once.
	Reject
	// Drop discards it, so that the client tries again elsewhere.
	Drop
)

func (a Action) String() string { return [...]string{"forward", "reject", "drop"}[a] }

// SourceNAT says when a forwarded connection's source address is replaced by the
// node's. Apart from this, a connection that an endpoint on this node makes to
// itself through a Service always is (hairpin).
type SourceNAT uint8

// The kinds of source NAT.
const (
	// MasqueradeOutside: if the source is no pod (FamilySnapshot.ClusterCIDRs). For
	// cluster IPs.
	MasqueradeOutside SourceNAT = iota
	// MasqueradeAlways: replies must come back through this node.
	MasqueradeAlways
)

// Endpoint is one address that answers for a service port.
type Endpoint struct {
	Addr  netip.AddrPort
	Local bool // on this node
}
