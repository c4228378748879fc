package model

import (
	"net/netip"
	"slices"
)

// Connection is a new connection, as this node sees its first packet.
type Connection struct {
	Source netip.Addr
	// SourcePort is the client's port; 0 if it is unknown. Only Decision.Chosen depends on it.
	SourcePort uint16
	Node       bool   // a process in the node's own network namespace makes it
	Interface  string // the input interface; "" if Node, or if it is unknown
	Dest       netip.AddrPort
	Protocol   Protocol
}

// Decision is the verdict about a connection, with its reason. The backends implement it.
type Decision struct {
	Connection
	Verdict Verdict
	Why     Reason

	// Port and Frontend have the destination; nil if no Service has it.
	Port     *ServicePort
	Frontend *Frontend
	// FromPod: the source is a pod on this node, or in the cluster, as Settings.Pods says.
	FromPod bool

	// For Forwarded: the endpoints that the traffic policy selects, sorted. One of them is
	// chosen; with affinity, a client that came before gets the same one again.
	TrafficPolicy TrafficPolicy
	Targets       []Target
}

// Target is an endpoint that a connection may be sent to.
type Target struct {
	Endpoint
	SNAT SNATReason // why the source is, or is not, replaced by the node's address
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
	NoService         Reason = iota // NotOurs: no Service has this address or node port
	HasEndpoints                    // Forwarded: as the traffic policy says
	FromPodInside                   // Forwarded: ShortCircuit, from a pod
	FromNodeInside                  // Forwarded: ShortCircuit, from this node
	NoEndpoints                     // Rejected: the service port has no endpoint on any node
	UnusedPort                      // Rejected: a cluster IP, but no port of its Service
	NoLocalEndpoints                // Dropped: it has endpoints, but none on this node
	SourceNotAllowed                // Dropped: the source is not in loadBalancerSourceRanges
	UnallocatedAddr                 // Dropped: in a ServiceCIDR, and no Service has it
	LoopbackForwarder               // Forwarded, by the listener on loopback
)

// SNATReason is the reason why a connection is masqueraded, or why it is not.
type SNATReason uint8

// The reasons; KeepSource and OnNode leave the source as it is.
const (
	KeepSource      SNATReason = iota // the reply passes this node anyhow
	OnNode                            // the endpoint is in this node's own network
	Hairpin                           // the endpoint is the client, and not the destination
	EveryClusterIP                    // Settings.MasqueradeAll
	OffCluster                        // to a cluster IP, but not from a pod
	ExternalCluster                   // from outside, by a node that may not have the endpoint
	FromNode                          // from this node, to an external address
	ByForwarder                       // the listener on loopback makes a connection of its own
)

// Masquerade reports whether the source address is replaced.
func (r SNATReason) Masquerade() bool { return r > OnNode }

// Difference is a difference of a backend from the model.
type Difference struct {
	What string
	// Concerns reports whether a decision is carried out otherwise.
	Concerns func(s *FamilySnapshot, d Decision) bool
}

// Decide decides about a new connection of a client that session affinity does not remember. It is the specification:
// explain prints its decisions, and the tests compare each backend with it.
//
// The destination may be an endpoint's own address and port. Then the endpoint is a target like any other, and the
// client is masqueraded as for the other targets, though the kernel translates no destination (nf_nat_setup_info). It
// is no hairpin: an untranslated reply is already from the address that the client named.
func Decide(s *Snapshot, c Connection) Decision {
	to := c.Dest.Addr()
	fs := s.Family(FamilyOf(to))
	if sp, fe := fs.frontend(c); fe != nil {
		d := fs.DecideAt(sp, fe, c)
		if d.Verdict == Forwarded {
			for e := range sp.In(d.TrafficPolicy) {
				d.Targets = append(d.Targets, Target{e, fs.sourceNAT(&d, e)})
			}
		}
		return d
	}
	d := Decision{Connection: c, FromPod: fs.Pods.Contains(c.Source, c.Interface)}
	switch {
	case isLoopback(to), slices.Contains(fs.NodeAddrs, to): // a process may listen there, as with NodeLocal DNSCache
	case fs.IsClusterIP(to):
		d.Verdict, d.Why = Rejected, UnusedPort
	case contains(fs.ServiceCIDRs, to):
		d.Verdict, d.Why = Dropped, UnallocatedAddr
	}
	return d
}

// isLoopback reports whether connect(2) takes an address for loopback. A connection there meets no rule in the kernel.
func isLoopback(a netip.Addr) bool { return a.IsLoopback() || a.IsUnspecified() }

// Chosen returns the one of the targets that is chosen, if chance does not decide: there is only one, or a
// lookup table has it. IPVS has a table of its own, and iptables has none.
func (d Decision) Chosen() (t Target, ok bool) {
	if len(d.Targets) == 1 {
		return d.Targets[0], true
	}
	if len(d.Targets) == 0 || d.SourcePort == 0 && d.Port.Algorithm == MaglevPort {
		return t, false
	}
	table := d.Port.Table(d.TrafficPolicy)
	if table == nil {
		return t, false
	}
	e := d.Port.Endpoints[table[TableSlot(d.Port.Algorithm, d.Source, d.SourcePort, len(table))]]
	i := slices.IndexFunc(d.Targets, func(t Target) bool { return t.Addr == e.Addr })
	return d.Targets[i], true
}

// frontend finds the frontend that a connection is for. An address of a Service precedes a
// node port, as it may be an address of the node, too.
func (s *FamilySnapshot) frontend(c Connection) (*ServicePort, *Frontend) {
	to, nodePort := c.Dest.Addr(), VIP{s.Family.Unspecified(), c.Protocol, c.Dest.Port()}
	if isLoopback(to) { // the forwarder's listener may accept it, see ServicePort.Loopback
		if !s.Localhost || !c.Node || c.Protocol == SCTP || to.IsLoopback() && to != s.Family.Loopback() {
			return nil, nil
		}
		return s.find(nodePort)
	}
	sp, fe := s.find(VIP{to, c.Protocol, c.Dest.Port()})
	if fe == nil && slices.Contains(s.NodePortAddrs, to) {
		return s.find(nodePort)
	}
	return sp, fe
}

// find looks through all frontends. Decide is for explain and for tests, and may be slow.
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

// DecideAt is the function Decide for a connection with a known frontend, without the targets. A
// backend that decides about each connection when it comes has no time to look through all
// frontends and endpoints; it chooses one of those that Decision.TrafficPolicy selects.
func (s *FamilySnapshot) DecideAt(sp *ServicePort, fe *Frontend, c Connection) Decision {
	d := Decision{Connection: c, FromPod: s.Pods.Contains(c.Source, c.Interface), Port: sp, Frontend: fe}
	_, policy, ok := sp.Loopback()
	toLoopback := isLoopback(c.Dest.Addr())
	switch {
	case toLoopback && ok:
		d.Verdict, d.Why, d.TrafficPolicy = Forwarded, LoopbackForwarder, policy
	case toLoopback:
		d.Verdict, d.Why, d.TrafficPolicy = Rejected, NoEndpoints, policy
	case fe.Restricted && !contains(sp.Allowed(*fe), d.Source):
		d.Verdict, d.Why = Dropped, SourceNotAllowed
	case fe.ShortCircuit && d.FromPod:
		d.Verdict, d.Why, d.TrafficPolicy = Forwarded, FromPodInside, Cluster
	case fe.ShortCircuit && d.Node:
		d.Verdict, d.Why, d.TrafficPolicy = Forwarded, FromNodeInside, Cluster
	case fe.Action == Reject:
		d.Verdict, d.Why = Rejected, NoEndpoints
	case fe.Action == Drop:
		d.Verdict, d.Why, d.TrafficPolicy = Dropped, NoLocalEndpoints, fe.TrafficPolicy
	default:
		d.Verdict, d.Why, d.TrafficPolicy = Forwarded, HasEndpoints, fe.TrafficPolicy
	}
	return d
}

func (s *FamilySnapshot) sourceNAT(d *Decision, e Endpoint) SNATReason {
	toNode := slices.Contains(s.NodeAddrs, e.Addr.Addr())
	_, isHairpin := s.Hairpins.Get(AddrKeys, d.Source)
	switch {
	case d.Why == LoopbackForwarder:
		return ByForwarder
	case toNode && !d.Node:
		return OnNode
	case isHairpin && e.Addr.Addr() == d.Source && e.Addr != d.Dest:
		return Hairpin
	case d.Frontend.SourceNAT == MasqueradeAlways:
		return ExternalCluster
	case d.Frontend.SourceNAT == MasqueradeNode && d.Node:
		return FromNode
	case d.Frontend.SourceNAT != MasqueradeOutside:
		return KeepSource
	case toNode && e.Addr == d.Dest: // nothing is translated between this node and itself
		return OnNode
	case s.MasqueradeAll:
		return EveryClusterIP
	case s.Pods.Known() && !d.FromPod:
		return OffCluster
	}
	return KeepSource
}
