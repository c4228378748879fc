package compile

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
)

// Names of chains that others lead to. choice.go names those that choose an endpoint,
// and affinity.go those of session affinity.
const (
	servicesChain     = "services"
	clusterIPsChain   = "cluster-ips-check"
	rejectChain       = "reject-chain"
	rememberChain     = "remember"
	masqueradeChain   = "masquerade-all"
	masqueradeNode    = "masquerade-node"
	masqueradeOutside = "masquerade-outside"

	restComment = "what neither a Service nor another program has translated"
)

// Priorities of the base chains, relative to those that the kernel names (enum nf_ip_hook_priorities).
//
// Other programs' chains have the priority of DNAT, as kube-proxy's and those of iptables do: see package nft. The
// first packet of a connection that began before there were rules may come once more: no chain can translate it any
// more (nf_nat_setup_info), and none must refuse it.
//
// The endpoint of a client is remembered right behind all DNAT, by a chain of type filter, and before routing, so that
// a client of an endpoint without a route is sent to another one.
const (
	priorityServices = nft.PriorityDNAT - 1
	priorityRest     = nft.PriorityDNAT + 5
	priorityRemember = nft.PriorityDNAT + 1
	priorityFastPath = int32(200) // behind security, at 50
	priorityAnswer   = nft.PrioritySNAT - 1
)

var (
	vipKey      = nft.Key{{Field: nft.DestAddr}, {Field: nft.Protocol}, {Field: nft.DestPort}}
	nodePortKey = nft.Key{{Field: nft.Protocol}, {Field: nft.DestPort}}
	destKey     = nft.Key{{Field: nft.DestAddr}}
	sourceKey   = nft.Key{{Field: nft.SourceAddr}}
	sourcesKey  = nft.Key{{Field: nft.DestAddr}, {Field: nft.DestPort}, {Field: nft.SourceAddr}}
	replyKey    = nft.Key{{Field: nft.SourceAddr}, {Field: nft.Protocol}, {Field: nft.SourcePort}}
	endpointKey = nft.Key{{Field: nft.DestAddr}, {Field: nft.DestPort}}
	hairpinKey  = nft.Key{{Field: nft.SourceAddr}, {Field: nft.DestAddr}}
	origDestKey = nft.Key{{Field: nft.OrigDestAddr}}
	origVIPKey  = nft.Key{{Field: nft.OrigDestAddr}, {Field: nft.Protocol}, {Field: nft.OrigDestPort}}
	origPortKey = nft.Key{{Field: nft.Protocol}, {Field: nft.OrigDestPort}}
)

// Statements that many rules have.

var dropPacket = nft.Verdict{Kind: nft.DropPacket}

func protocolIs(p model.Protocol) nft.MatchProtocol { return nft.MatchProtocol{Protocol: p} }

func inSet(k nft.Key, set string) nft.InSet { return nft.InSet{Key: k, Set: set} }

func verdictIn(k nft.Key, name string) nft.VerdictMap { return nft.VerdictMap{Key: k, Map: name} }

func goTo(chain string) nft.Verdict { return nft.Verdict{Kind: nft.Goto, Chain: chain} }

func jumpTo(chain string) nft.Verdict { return nft.Verdict{Kind: nft.Jump, Chain: chain} }

func (o Options) layoutChains(s *model.Settings, c neededChains) []nft.Chain {
	chains := []nft.Chain{
		{
			Name: "prerouting", Hook: nft.Prerouting, Prio: priorityServices,
			Rules: []nft.Rule{{jumpTo(servicesChain)}}, Comment: "from pods and from other machines",
		},
		{
			Name: "prerouting-rest", Hook: nft.Prerouting, Prio: priorityRest,
			Rules: []nft.Rule{{nft.MatchFirst, jumpTo(clusterIPsChain)}}, Comment: restComment,
		},
		{
			Name: "output", Hook: nft.Output, Prio: priorityServices,
			Rules:   []nft.Rule{{nft.MatchOriginal, jumpTo(servicesChain)}},
			Comment: "from the node itself, but not its refusals",
		},
		{
			Name: "output-rest", Hook: nft.Output, Prio: priorityRest,
			Rules: []nft.Rule{{nft.MatchFirst, nft.MatchOriginal, jumpTo(clusterIPsChain)}}, Comment: restComment,
		},
		{
			Name: "postrouting", Hook: nft.Postrouting, Prio: nft.PrioritySNAT,
			Rules: postroutingRules(s), Comment: "after an endpoint was chosen: is the source address replaced?",
		},
		{Name: servicesChain, Rules: o.servicesRules(c.usage.affinity > 0), Comment: "find the Service"},
		{Name: clusterIPsChain, Rules: restRules(s), Comment: "refuse what no Service has"},
		{Name: rejectChain, Rules: rejectRules, Comment: "no endpoint, or a port that the Service does not have"},
		{Name: masqueradeChain, Rules: []nft.Rule{{nft.Masquerade{}}}, Comment: "replies must come back through this node"},
		{
			Name: masqueradeNode, Rules: []nft.Rule{{nft.MatchFromNode, nft.Masquerade{}}},
			Comment: "the node may have taken an address that others can't answer to",
		},
		{
			Name:    masqueradeOutside,
			Rules:   []nft.Rule{{nft.MatchUntranslated, nft.MatchToNode, nft.Verdict{Kind: nft.Return}}, {nft.Masquerade{}}},
			Comment: "replies must come back through this node, unless a process of it has the cluster IP",
		},
	}
	var invalid []nft.Rule
	if c.usage.retry > 0 && len(o.Timeouts) > 0 {
		invalid = append(invalid, lateAnswer)
	}
	if s.DropInvalid {
		invalid = append(invalid, invalidRules...)
	}
	if len(invalid) > 0 {
		chains = append(chains, nft.Chain{
			Name: "forward", Hook: nft.Forward, Prio: nft.PriorityFilter, Filter: true, Rules: invalid,
			Comment: "packets of Services that connection tracking classifies as INVALID",
		})
	}
	if c.usage.tried > 0 && len(o.Timeouts) > 0 {
		for name, hook := range map[string]nft.Hook{"answer-input": nft.Input, "answer-postrouting": nft.Postrouting} {
			chains = append(chains, nft.Chain{
				Name: name, Hook: hook, Prio: priorityAnswer, Filter: true, Rules: []nft.Rule{answered},
				Comment: "an answer, before the client's port is used again",
			})
		}
	}
	chains = append(chains, o.fastPathChains()...)
	if c.usage.affinity > 0 {
		for name, hook := range map[string]nft.Hook{"remember-prerouting": nft.Prerouting, "remember-output": nft.Output} {
			chains = append(chains, nft.Chain{
				Name: name, Hook: hook, Prio: priorityRemember, Filter: true,
				Rules:   []nft.Rule{{nft.MatchFirst, jumpTo(rememberChain)}},
				Comment: "first packets of connections, behind all DNAT",
			})
		}
		chains = append(chains, nft.Chain{
			Name: rememberChain, Rules: byOrigin(nft.RememberIPs, nft.RememberNodePorts),
			Comment: "session affinity: remember the client's endpoint",
		})
	}
	for one := range c.choosing {
		chains = append(chains, one.chain(o, s))
	}
	slices.SortFunc(chains, func(a, b nft.Chain) int { return strings.Compare(a.Name, b.Name) })
	return chains
}

// rejectRules refuse a connection. ICMP errors are rate-limited by the kernel (net.ipv4.icmp_ratelimit): with them
// alone, half of a burst of refused connections would time out.
var rejectRules = []nft.Rule{{protocolIs(model.TCP), nft.Reject{TCPReset: true}}, {nft.Reject{}}}

// servicesRules dispatch a packet to its Service. The addresses of Services are looked up
// before the node ports, because such an address may be one of the node, too. A packet that
// reaches the rules for node ports is for no address of a Service, so it is counted once.
func (o Options) servicesRules(affinity bool) []nft.Rule {
	var rules []nft.Rule
	for _, p := range protocols {
		rules = append(rules, nft.Rule{
			protocolIs(p),
			inSet(vipKey, nft.FirewallIPs),
			nft.InSet{Key: sourcesKey, Set: nft.SourceRanges(p), Not: true},
			dropPacket,
		})
	}
	if o.Counters {
		rules = append(rules, nft.Rule{inSet(vipKey, nft.ServiceCounters)})
	}
	if affinity {
		rules = append(rules, nft.Rule{verdictIn(vipKey, nft.AffinityIPs)})
	}
	rules = append(rules, nft.Rule{verdictIn(vipKey, nft.ServiceIPs)})
	toNode := inSet(destKey, nft.NodePortIPs)
	if o.Counters {
		rules = append(rules, nft.Rule{toNode, inSet(nodePortKey, nft.NodePortCounters)})
	}
	if affinity {
		rules = append(rules, nft.Rule{toNode, verdictIn(nodePortKey, nft.AffinityNodePorts)})
	}
	rules = append(rules, nft.Rule{toNode, verdictIn(nodePortKey, nft.ServiceNodePorts)})
	return rules
}

// restRules refuse connections to other ports of cluster IPs, and drop those to the rest of the ServiceCIDRs. An
// address that is on the node, too, may be a process's of the node, as with NodeLocal DNSCache; the kernel refuses
// ports that no process has.
func restRules(s *model.Settings) []nft.Rule {
	rules := []nft.Rule{{inSet(destKey, nft.ClusterIPs), nft.MatchNotToNode, goTo(rejectChain)}}
	if len(s.ServiceCIDRs) > 0 {
		rules = append(rules, nft.Rule{inSet(destKey, nft.ServiceCIDRs), nft.MatchNotToNode, dropPacket})
	}
	return rules
}

var protocols = [...]model.Protocol{model.TCP, model.UDP, model.SCTP}

// postroutingRules look up the destination that the client asked for, whether it was translated or not: it may already
// be the endpoint's. Then the kernel leaves it alone, and does not set the state DNAT (nf_nat_setup_info).
func postroutingRules(s *model.Settings) []nft.Rule {
	rules := append([]nft.Rule{{nft.MatchDNAT, inSet(hairpinKey, nft.Hairpin), nft.Masquerade{}}},
		byOrigin(nft.SourceNAT, nft.NodePortSourceNAT)...)
	var fromOutside nft.Rule // first, so that a pod's connections need no lookup
	switch {
	case s.MasqueradeAll:
	case s.Pods.Interface != "":
		fromOutside = nft.Rule{nft.MatchInterface{Name: s.Pods.Interface, Wildcard: s.Pods.Wildcard, Not: true}}
	case !s.Pods.Known(), isEverything(s.Pods.CIDRs):
		return rules
	default:
		for _, p := range s.Pods.CIDRs {
			fromOutside = append(fromOutside, nft.MatchSource{Prefix: p, Not: true})
		}
	}
	return append(rules, append(fromOutside, inSet(origDestKey, nft.ClusterIPs), goTo(masqueradeOutside)))
}

// byOrigin looks up the address that the client connected to. The kernel must know the protocol before it takes "ct
// original proto-dst" into a concatenation, hence a rule per protocol.
func byOrigin(addrs, nodePorts string) []nft.Rule {
	var rules []nft.Rule
	for _, p := range protocols {
		rules = append(rules, nft.Rule{protocolIs(p), verdictIn(origVIPKey, addrs)})
	}
	for _, p := range protocols {
		rules = append(rules, nft.Rule{protocolIs(p), inSet(origDestKey, nft.NodePortIPs), verdictIn(origPortKey, nodePorts)})
	}
	return rules
}

// invalidRules drop packets in the conntrack state INVALID, such as a segment outside the
// window: a reply would reach the client with the pod's own address.
var invalidRules = []nft.Rule{
	{nft.MatchInvalid, inSet(replyKey, nft.ServiceEndpoints), dropPacket},
	{nft.MatchInvalid, inSet(destKey, nft.ClusterIPs), dropPacket},
}

// fromInside returns rules that apply a statement to connections from pods and from the node itself.
func fromInside(s *model.Settings, do nft.Statement) []nft.Rule {
	var rules []nft.Rule
	switch {
	case s.Pods.Interface != "":
		rules = append(rules, nft.Rule{nft.MatchInterface{Name: s.Pods.Interface, Wildcard: s.Pods.Wildcard}, do})
	case isEverything(s.Pods.CIDRs):
		return []nft.Rule{{do}}
	default:
		for _, p := range s.Pods.CIDRs {
			rules = append(rules, nft.Rule{nft.MatchSource{Prefix: p}, do})
		}
	}
	return append(rules, nft.Rule{nft.MatchFromNode, do})
}

// isEverything reports whether the prefixes cover all addresses. nft can't list a rule that
// matches a prefix of no bits.
func isEverything(prefixes []netip.Prefix) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Bits() == 0 })
}
