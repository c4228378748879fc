package model

import (
	"net/netip"
	"slices"
)

// Connection is a new connection, as this node sees its first packet.
type Connection struct {
	Source    netip.Addr
	Node      bool   // it is made by a process in this node's own network
	Interface string // by which it comes in; "" if Node, or if that is unknown
	Dest      netip.AddrPort
	Protocol  Protocol
}

// Decision is what becomes of a connection, and why. The backends do what it says.
type Decision struct {
	Connection
	Verdict Verdict
	Why     Reason

	// Port and Frontend are who is meant; nil if it is no frontend of a Service.
	Port     *ServicePort
	Frontend *Frontend
	// FromPod: the connection counts as a pod's.
	FromPod bool

	// For Forwarded: the endpoints of which one is chosen, sorted. With affinity, a
	// client that was here before is sent to the same as then.
	TrafficPolicy TrafficPolicy
	Targets       []Target
}

// Target is an endpoint that a connection may be sent to.
type Target struct {
	Endpoint
	SNAT SNATReason // why it sees the node's address as its client's, or does not
}

// Verdict is the result of a decision about a connection.
type Verdict uint8

// The verdicts.
const (
	NotOurs   Verdict = iota // no Service has the destination: the packet stays as it is
	Forwarded                // to one of Decision.Targets
	Rejected                 // with a TCP reset or an ICMP error
	Dropped                  // without an answer
)

func (v Verdict) String() string {
	return [...]string{"not ours", "forwarded", "rejected", "dropped"}[v]
}

// Reason is the rule that decided about a connection.
type Reason uint8

// The reasons.
const (
	NoService         Reason = iota // NotOurs: nobody has this address, or node port
	HasEndpoints                    // Forwarded: as the traffic policy says
	FromPodInside                   // Forwarded: ShortCircuit, from a pod
	FromNodeInside                  // Forwarded: ShortCircuit, from this node
	NoEndpoints                     // Rejected: there are none, nowhere
	UnusedPort                      // Rejected: a cluster IP, but no port of its Service
	NoLocalEndpoints                // Dropped: there are some, but not on this node
	SourceNotAllowed                // Dropped: not in loadBalancerSourceRanges
	UnallocatedAddr                 // Dropped: in a ServiceCIDR, and no Service has it
	LoopbackForwarder               // Forwarded, by the program that listens on loopback
)

// SNATReason says why a connection's source address is replaced by the node's, or why
// it is not.
type SNATReason uint8

// The reasons; KeepSource and OnNode leave the source as it is.
const (
	KeepSource      SNATReason = iota // the reply finds its way back through this node
	OnNode                            // the endpoint is in this node's own network
	Hairpin                           // the endpoint is the client
	EveryClusterIP                    // Settings.MasqueradeAll
	OffCluster                        // to a cluster IP, but not from a pod
	ExternalCluster                   // from outside, by a node that may not have the endpoint
	FromNode                          // from this node, to an external address
	ByForwarder                       // the program that listens on loopback connects anew
)

// Masquerade reports whether the source address is replaced.
func (r SNATReason) Masquerade() bool { return r > OnNode }

// Decide says what becomes of a new connection. It is the specification: what explain
// prints, and what the tests compare each backend with.
func Decide(s *Snapshot, c Connection) Decision {
	fs := s.Family(FamilyOf(c.Dest.Addr()))
	d := Decision{Connection: c, FromPod: fs.Pods.Contains(c.Source, c.Interface)}
	// connect(2) takes the unspecified address for loopback.
	if a := c.Dest.Addr(); a.IsLoopback() || a.IsUnspecified() {
		fs.decideLoopback(&d)
		return d
	}
	d.Port, d.Frontend = fs.frontend(c)
	_, isClusterIP := fs.clusterIPs.Get(AddrKeys, c.Dest.Addr())
	switch {
	case d.Frontend != nil:
		fs.decideFrontend(&d)
	case isClusterIP:
		d.Verdict, d.Why = Rejected, UnusedPort
	case contains(fs.ServiceCIDRs, c.Dest.Addr()):
		d.Verdict, d.Why = Dropped, UnallocatedAddr
	}
	return d
}

// frontend finds who is meant. A Service's address goes before a node port: it may be an
// address of the node as well.
func (s *FamilySnapshot) frontend(c Connection) (*ServicePort, *Frontend) {
	sp, fe := s.find(VIP{c.Dest.Addr(), c.Protocol, c.Dest.Port()})
	if fe == nil && slices.Contains(s.NodePortAddrs, c.Dest.Addr()) {
		return s.find(VIP{s.Family.Unspecified(), c.Protocol, c.Dest.Port()})
	}
	return sp, fe
}

// find looks through all frontends: nobody who is in a hurry asks for a Decision.
func (s *FamilySnapshot) find(v VIP) (*ServicePort, *Frontend) {
	for sp := range s.ServicePorts() {
		for i := range sp.Frontends {
			if sp.Frontends[i].VIP == v {
				return sp, &sp.Frontends[i]
			}
		}
	}
	return nil, nil
}

func (s *FamilySnapshot) decideFrontend(d *Decision) {
	sp, fe := d.Port, d.Frontend
	switch {
	case fe.Restricted && !contains(sp.Allowed(*fe), d.Source):
		d.Verdict, d.Why = Dropped, SourceNotAllowed
		return
	case fe.ShortCircuit && d.FromPod:
		d.Verdict, d.Why, d.TrafficPolicy = Forwarded, FromPodInside, Cluster
	case fe.ShortCircuit && d.Node:
		d.Verdict, d.Why, d.TrafficPolicy = Forwarded, FromNodeInside, Cluster
	case fe.Action == Reject:
		d.Verdict, d.Why = Rejected, NoEndpoints
		return
	case fe.Action == Drop:
		d.Verdict, d.Why, d.TrafficPolicy = Dropped, NoLocalEndpoints, fe.TrafficPolicy
		return
	default:
		d.Verdict, d.Why, d.TrafficPolicy = Forwarded, HasEndpoints, fe.TrafficPolicy
	}
	for e := range sp.In(d.TrafficPolicy) {
		d.Targets = append(d.Targets, Target{e, s.sourceNAT(d, e)})
	}
}

func (s *FamilySnapshot) sourceNAT(d *Decision, e Endpoint) SNATReason {
	toNode := slices.Contains(s.NodeAddrs, e.Addr.Addr())
	_, isHairpin := s.hairpins.Get(AddrKeys, d.Source)
	switch {
	case toNode && !d.Node:
		return OnNode
	case isHairpin && e.Addr.Addr() == d.Source:
		return Hairpin
	case d.Frontend.SourceNAT == MasqueradeAlways:
		return ExternalCluster
	case d.Frontend.SourceNAT == MasqueradeNode && d.Node:
		return FromNode
	case d.Frontend.SourceNAT != MasqueradeOutside:
		return KeepSource
	case s.MasqueradeAll:
		return EveryClusterIP
	case s.Pods.Known() && !d.FromPod:
		return OffCluster
	}
	return KeepSource
}

// decideLoopback decides about a connection to a loopback address, which meets no rule in
// the kernel: the forwarder's listener accepts it (see [ServicePort.Loopback]).
func (s *FamilySnapshot) decideLoopback(d *Decision) {
	sp, fe := s.find(VIP{s.Family.Unspecified(), d.Protocol, d.Dest.Port()})
	if fe == nil || !s.Localhost || !d.Node {
		return
	}
	at, policy, ok := sp.Loopback()
	if a := d.Dest.Addr(); !at.IsValid() || a != at.Addr() && !a.IsUnspecified() {
		return
	}
	d.Port, d.Frontend, d.TrafficPolicy = sp, fe, policy
	if !ok {
		d.Verdict, d.Why = Rejected, NoEndpoints
		return
	}
	d.Verdict, d.Why = Forwarded, LoopbackForwarder
	for e := range sp.In(policy) {
		d.Targets = append(d.Targets, Target{e, ByForwarder})
	}
}
