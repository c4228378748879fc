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
	fs := s.Family(FamilyOf(c.Dest.Addr()))
	d := Decision{Connection: c, FromPod: fs.Pods.Contains(c.Source, c.Interface)}
	// connect(2) takes the unspecified address for loopback.
	if a := c.Dest.Addr(); a.IsLoopback() || a.IsUnspecified() {
		fs.decideLoopback(&d)
		return d
	}
	d.Port, d.Frontend = fs.frontend(c)
	switch {
	case d.Frontend != nil:
		fs.decideFrontend(&d)
	case slices.Contains(fs.NodeAddrs, c.Dest.Addr()): // a process may listen there, as with NodeLocal DNSCache
	case fs.IsClusterIP(c.Dest.Addr()):
		d.Verdict, d.Why = Rejected, UnusedPort
	case contains(fs.ServiceCIDRs, c.Dest.Addr()):
		d.Verdict, d.Why = Dropped, UnallocatedAddr
	}
	return d
}

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
	sp, fe := s.find(VIP{c.Dest.Addr(), c.Protocol, c.Dest.Port()})
	if fe == nil && slices.Contains(s.NodePortAddrs, c.Dest.Addr()) {
		return s.find(VIP{s.Family.Unspecified(), c.Protocol, c.Dest.Port()})
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

func (s *FamilySnapshot) decideFrontend(d *Decision) {
	d.judge()
	if d.Verdict != Forwarded {
		return
	}
	for e := range d.Port.In(d.TrafficPolicy) {
		d.Targets = append(d.Targets, Target{e, s.sourceNAT(d, e)})
	}
}

// DecideAt is the function Decide for a connection with a known frontend, without the targets. A
// backend that decides about each connection when it comes has no time to look through all
// frontends and endpoints; it chooses one of those that Decision.TrafficPolicy selects.
func (s *FamilySnapshot) DecideAt(sp *ServicePort, fe *Frontend, c Connection) Decision {
	d := Decision{Connection: c, FromPod: s.Pods.Contains(c.Source, c.Interface), Port: sp, Frontend: fe}
	if c.Dest.Addr().IsLoopback() {
		d.judgeLoopback()
	} else {
		d.judge()
	}
	return d
}

// judge decides about a connection to a frontend of the network.
func (d *Decision) judge() {
	sp, fe := d.Port, d.Frontend
	switch {
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
}

// judgeLoopback decides about a connection to a node port on loopback.
func (d *Decision) judgeLoopback() {
	_, policy, ok := d.Port.Loopback()
	d.TrafficPolicy = policy
	if !ok {
		d.Verdict, d.Why = Rejected, NoEndpoints
		return
	}
	d.Verdict, d.Why = Forwarded, LoopbackForwarder
}

func (s *FamilySnapshot) sourceNAT(d *Decision, e Endpoint) SNATReason {
	toNode := slices.Contains(s.NodeAddrs, e.Addr.Addr())
	_, isHairpin := s.Hairpins.Get(AddrKeys, d.Source)
	switch {
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

// decideLoopback decides about a connection to a loopback address, which meets no rule in
// the kernel: the forwarder's listener accepts it (see [ServicePort.Loopback]).
func (s *FamilySnapshot) decideLoopback(d *Decision) {
	sp, fe := s.find(VIP{s.Family.Unspecified(), d.Protocol, d.Dest.Port()})
	if fe == nil || !s.Localhost || !d.Node {
		return
	}
	at, policy, _ := sp.Loopback()
	if a := d.Dest.Addr(); !at.IsValid() || a != at.Addr() && !a.IsUnspecified() {
		return
	}
	d.Port, d.Frontend = sp, fe
	d.judgeLoopback()
	if d.Verdict != Forwarded {
		return
	}
	for e := range sp.In(policy) {
		d.Targets = append(d.Targets, Target{e, ByForwarder})
	}
}
