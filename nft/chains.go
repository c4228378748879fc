package nft

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// Names of the chains that every table has. choice.go names those that choose an endpoint,
// and affinity.go those of session affinity.
const (
	servicesChain     = "services"
	clusterIPsChain   = "cluster-ips-check"
	rejectChain       = "reject-chain"
	rememberChain     = "remember"
	rememberArrival   = "remember-prerouting"
	rememberOutput    = "remember-output"
	masqueradeChain   = "masquerade-all"
	masqueradeNode    = "masquerade-node"
	masqueradeOutside = "masquerade-outside"
	preroutingChain   = "prerouting"
	preroutingRest    = "prerouting-rest"
	forwardChain      = "forward"
	outputChain       = "output"
	outputRest        = "output-rest"
	postroutingChain  = "postrouting"

	restComment = "what neither a Service nor another program has translated"
)

// Priorities of the base chains, relative to those that the kernel names (enum nf_ip_hook_priorities).
//
// The kernel runs the nat chains of a hook in the order of their priorities until one has translated the connection
// (nf_nat_inet_fn). Of equal ones, the chain that was registered last is first. Other programs' chains have the
// priority of DNAT, as kube-proxy's and those of iptables do. So what a Service serves is translated, or refused,
// before their rules apply, and what no Service serves is refused behind them: it may be another program's. The first
// packet of a connection that began before there were rules may come once more: no chain can translate it any more
// (nf_nat_setup_info), and none must refuse it.
//
// The endpoint of a client is remembered right behind all DNAT, by a chain of type filter: at whatever priority
// chains of type nat are, the kernel passes them at that of DNAT (nf_nat_register_fn). Packets show the client's
// address there. It is before routing, so that a client of an endpoint whose route is gone is sent to another one, and
// gets no error.
const (
	priorityDNAT     int32 = -100
	priorityServices int32 = priorityDNAT - 1
	priorityRest     int32 = priorityDNAT + 5
	priorityFilter   int32 = 0
	priorityRemember int32 = priorityDNAT + 1
	priorityFastPath int32 = 200 // behind security, at 50
	prioritySNAT     int32 = 100
)

var (
	vipKey      = Key{{Field: DestAddr}, {Field: Protocol}, {Field: DestPort}}
	nodePortKey = Key{{Field: Protocol}, {Field: DestPort}}
	destKey     = Key{{Field: DestAddr}}
	sourceKey   = Key{{Field: SourceAddr}}
	sourcesKey  = Key{{Field: DestAddr}, {Field: DestPort}, {Field: SourceAddr}}
	replyKey    = Key{{Field: SourceAddr}, {Field: Protocol}, {Field: SourcePort}}
	endpointKey = Key{{Field: DestAddr}, {Field: DestPort}}
	hairpinKey  = Key{{Field: SourceAddr}, {Field: DestAddr}}
	origDestKey = Key{{Field: OrigDestAddr}}
	origVIPKey  = Key{{Field: OrigDestAddr}, {Field: Protocol}, {Field: OrigDestPort}}
	origPortKey = Key{{Field: Protocol}, {Field: OrigDestPort}}
)

func (o Options) layoutChains(s *model.Settings, c chosen) []Chain {
	chains := []Chain{
		{
			Name: preroutingChain, Hook: Prerouting, Prio: priorityServices,
			Rules: []Rule{{Verdict{Jump, servicesChain}}}, Comment: "from pods and from other machines",
		},
		{
			Name: preroutingRest, Hook: Prerouting, Prio: priorityRest,
			Rules: []Rule{{MatchFirst{}, Verdict{Jump, clusterIPsChain}}}, Comment: restComment,
		},
		{
			Name: outputChain, Hook: Output, Prio: priorityServices,
			Rules:   []Rule{{MatchOriginal{}, Verdict{Jump, servicesChain}}},
			Comment: "from the node itself, but not its refusals",
		},
		{
			Name: outputRest, Hook: Output, Prio: priorityRest,
			Rules: []Rule{{MatchFirst{}, MatchOriginal{}, Verdict{Jump, clusterIPsChain}}}, Comment: restComment,
		},
		{
			Name: postroutingChain, Hook: Postrouting, Prio: prioritySNAT,
			Rules: postroutingRules(s, c.features), Comment: "after an endpoint was chosen: is the source address replaced?",
		},
		{Name: servicesChain, Rules: o.servicesRules(c.features), Comment: "dispatch: who is meant?"},
		{Name: clusterIPsChain, Rules: restRules(s), Comment: "refuse what no Service has"},
		{Name: rejectChain, Rules: o.rejectRules(), Comment: "no endpoint, or a port that the Service does not have"},
		{Name: masqueradeChain, Rules: []Rule{{Masquerade{}}}, Comment: "replies must come back through this node"},
		{
			Name: masqueradeNode, Rules: []Rule{{MatchFromNode{}, Masquerade{}}},
			Comment: "the node may have taken an address that others can't answer to",
		},
		{
			Name:    masqueradeOutside,
			Rules:   []Rule{{MatchUntranslated{}, MatchToNode{}, Verdict{Kind: Return}}, {Masquerade{}}},
			Comment: "replies must come back through this node, unless a process of it has the cluster IP",
		},
	}
	if s.DropInvalid {
		chains = append(chains, Chain{
			Name: forwardChain, Hook: Forward, Prio: priorityFilter, Filter: true, Rules: invalidRules(),
			Comment: "packets of Services that belong to no connection would only break one",
		})
	}
	chains = append(chains, o.FastPathChains()...)
	if c.remembers {
		first := []Rule{{MatchFirst{}, Verdict{Jump, rememberChain}}}
		chains = append(chains,
			Chain{
				Name: rememberArrival, Hook: Prerouting, Prio: priorityRemember, Filter: true, Rules: first,
				Comment: "first packets of connections, behind all DNAT",
			},
			Chain{
				Name: rememberOutput, Hook: Output, Prio: priorityRemember, Filter: true, Rules: first,
				Comment: "first packets of connections, behind all DNAT",
			},
			Chain{Name: rememberChain, Rules: byOrigin(RememberIPs, RememberNodePorts, protocols[:], protocols[:]), Comment: "session affinity: who got which endpoint?"})
	}
	for one := range c.choices {
		chains = append(chains, one.chain())
	}
	for one := range c.circuits {
		chains = append(chains, one.chain(s))
	}
	slices.SortFunc(chains, func(a, b Chain) int { return strings.Compare(a.Name, b.Name) })
	return chains
}

// rejectRules refuse a connection. An address of a Service may be one of the node, and its port the node port of
// another Service: what is counted for the address is no longer there for the node port.
func (o Options) rejectRules() []Rule {
	var rules []Rule
	if o.Counters {
		toService := InSet{Key: vipKey, Set: RefusedCounters}
		rules = []Rule{
			{MatchProtocol{model.TCP}, toService, Reject{TCPReset: true}},
			{toService, Reject{}},
			{InSet{Key: destKey, Set: NodePortIPs}, InSet{Key: nodePortKey, Set: NodePortRefused}},
		}
	}
	// ICMP errors are rate-limited by the kernel (net.ipv4.icmp_ratelimit): with
	// them alone, half of a burst of refused connections would time out.
	return append(rules, Rule{MatchProtocol{model.TCP}, Reject{TCPReset: true}}, Rule{Reject{}})
}

// servicesRules dispatch a packet to its Service. The addresses of Services are looked up
// before the node ports, because such an address may be one of the node, too. A packet that
// reaches the rules for node ports is for no address of a Service, so it is counted once.
func (o Options) servicesRules(has features) []Rule {
	var rules []Rule
	for _, p := range has.protocols(withSourceRanges) {
		rules = append(rules, Rule{
			MatchProtocol{p},
			InSet{Key: vipKey, Set: FirewallIPs},
			InSet{Key: sourcesKey, Set: SourceRanges(p), Not: true},
			Verdict{Kind: DropPacket},
		})
	}
	if o.Counters {
		rules = append(rules, Rule{InSet{Key: vipKey, Set: ServiceCounters}})
	}
	if has.has(withAffinity) {
		rules = append(rules, Rule{VerdictMap{vipKey, AffinityIPs}})
	}
	rules = append(rules, Rule{VerdictMap{vipKey, ServiceIPs}})
	if has.has(withNodePorts) {
		toNode := InSet{Key: destKey, Set: NodePortIPs}
		if o.Counters {
			rules = append(rules, Rule{toNode, InSet{Key: nodePortKey, Set: NodePortCounters}})
		}
		if has.has(withAffinity) {
			rules = append(rules, Rule{toNode, VerdictMap{nodePortKey, AffinityNodePorts}})
		}
		rules = append(rules, Rule{toNode, VerdictMap{nodePortKey, ServiceNodePorts}})
	}
	return rules
}

// restRules refuse connections to other ports of cluster IPs, and drop those to the rest of the ServiceCIDRs. An
// address that is on the node, too, may be a process's of the node, as with NodeLocal DNSCache; the kernel refuses
// ports that no process has.
func restRules(s *model.Settings) []Rule {
	notToNode := MatchToNode{Not: true}
	rules := []Rule{{InSet{Key: destKey, Set: ClusterIPs}, notToNode, Verdict{Goto, rejectChain}}}
	if len(s.ServiceCIDRs) > 0 {
		rules = append(rules, Rule{InSet{Key: destKey, Set: ServiceCIDRs}, notToNode, Verdict{Kind: DropPacket}})
	}
	return rules
}

var protocols = [...]model.Protocol{model.TCP, model.UDP, model.SCTP}

// postroutingRules look up the destination that the client asked for, whether it was translated
// or not: it may already be the endpoint's. Then the kernel leaves it alone, and does not set the
// state DNAT (nf_nat_setup_info).
func postroutingRules(s *model.Settings, has features) []Rule {
	var rules []Rule
	if has.has(withHairpins) {
		rules = append(rules, Rule{MatchDNAT{}, InSet{Key: hairpinKey, Set: Hairpin}, Masquerade{}})
	}
	rules = append(rules, byOrigin(SourceNAT, NodePortSourceNAT, has.protocols(withSourceNAT), has.protocols(withNodePortSourceNAT))...)
	toClusterIP, masquerade := InSet{Key: origDestKey, Set: ClusterIPs}, Verdict{Goto, masqueradeOutside}
	switch {
	case s.MasqueradeAll:
		rules = append(rules, Rule{toClusterIP, masquerade})
	case s.Pods.Interface != "":
		rules = append(rules, Rule{
			MatchInterface{Name: s.Pods.Interface, Wildcard: s.Pods.Wildcard, Not: true}, toClusterIP, masquerade,
		})
	case isEverything(s.Pods.CIDRs):
	case s.Pods.Known(): // a pod's connections need no lookup
		var r Rule
		for _, p := range s.Pods.CIDRs {
			r = append(r, MatchAddr{Field: SourceAddr, Prefix: p, Not: true})
		}
		rules = append(rules, append(r, toClusterIP, masquerade))
	}
	return rules
}

// byOrigin looks up the address that the client connected to. The kernel must know the
// protocol before it takes "ct original proto-dst" into a concatenation, hence a rule
// per protocol.
func byOrigin(addrs, nodePorts string, ofAddrs, ofNodePorts []model.Protocol) []Rule {
	var rules []Rule
	for _, p := range ofAddrs {
		rules = append(rules, Rule{MatchProtocol{p}, VerdictMap{origVIPKey, addrs}})
	}
	for _, p := range ofNodePorts {
		rules = append(rules, Rule{MatchProtocol{p}, InSet{Key: origDestKey, Set: NodePortIPs}, VerdictMap{origPortKey, nodePorts}})
	}
	return rules
}

// invalidRules drop packets in the conntrack state INVALID, such as a segment outside the
// window: a reply would reach the client with the pod's own address.
func invalidRules() []Rule {
	return []Rule{
		{MatchInvalid{}, InSet{Key: replyKey, Set: ServiceEndpoints}, Verdict{Kind: DropPacket}},
		{MatchInvalid{}, InSet{Key: destKey, Set: ClusterIPs}, Verdict{Kind: DropPacket}},
	}
}

// fromInside returns rules that apply a statement to connections from pods and from the node
// itself.
func fromInside(s *model.Settings, do Statement) []Rule {
	var rules []Rule
	switch {
	case s.Pods.Interface != "":
		rules = append(rules, Rule{MatchInterface{Name: s.Pods.Interface, Wildcard: s.Pods.Wildcard}, do})
	case isEverything(s.Pods.CIDRs):
		return []Rule{{do}}
	default:
		for _, p := range s.Pods.CIDRs {
			rules = append(rules, Rule{MatchAddr{Field: SourceAddr, Prefix: p}, do})
		}
	}
	return append(rules, Rule{MatchFromNode{}, do})
}

// isEverything reports whether the prefixes cover all addresses. nft can't list a rule that
// matches a prefix of no bits.
func isEverything(prefixes []netip.Prefix) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Bits() == 0 })
}
