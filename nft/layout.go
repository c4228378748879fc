package nft

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// Names of chains. endpoints-N and nodeport-endpoints-N exist for each N in use.
const (
	servicesChain    = "services"
	rejectChain      = "reject-chain"
	masqueradeChain  = "masquerade-all"
	preroutingChain  = "prerouting"
	outputChain      = "output"
	postroutingChain = "postrouting"
)

// Priorities of the base chains, as the kernel names them (enum nf_ip_hook_priorities):
// where kube-proxy has its own, which other components rely on (KEP-3866).
const (
	priorityDNAT int32 = -100
	prioritySNAT int32 = 100
)

// LayoutSets returns the sets and maps of a table, sorted by name. A set whose type
// changes in a later version must get another name: sets of the same name can't be
// exchanged without losing what they hold.
func LayoutSets() []Set {
	return []Set{
		{Name: ClusterIPs, Key: []Type{Addr}, Comment: "refuse connections to ports that no Service has"},
		{
			Name: Endpoints, Key: []Type{Addr, Proto, Service, Slot}, Data: []Type{Addr, Service},
			Comment: "who answers: slots 0 to N-1 of each service address",
		},
		{Name: Hairpin, Key: []Type{Addr, Addr}, Comment: "endpoints on this node that connect to themselves"},
		{
			Name: NodePortEndpoints, Key: []Type{Proto, Service, Slot}, Data: []Type{Addr, Service},
			Comment: "who answers: slots 0 to N-1 of each node port",
		},
		{Name: NodePortIPs, Key: []Type{Addr}, Comment: "where node ports answer"},
		{
			Name: NodePortSourceNAT, Key: []Type{Proto, Service}, Verdicts: true,
			Comment: "which node ports need the node's address as source",
		},
		{Name: ServiceCIDRs, Key: []Type{Addr}, Interval: true, Comment: "drop what no Service has"},
		{
			Name: ServiceIPs, Key: []Type{Addr, Proto, Service}, Verdicts: true,
			Comment: "cluster IPs, external IPs, load-balancer addresses",
		},
		{Name: ServiceNodePorts, Key: []Type{Proto, Service}, Verdicts: true, Comment: "node ports"},
		{
			Name: SourceNAT, Key: []Type{Addr, Proto, Service}, Verdicts: true,
			Comment: "which service addresses need the node's address as source",
		},
	}
}

var (
	vipKey      = Key{{Field: DestAddr}, {Field: Protocol}, {Field: DestPort}}
	nodePortKey = Key{{Field: Protocol}, {Field: DestPort}}
	destKey     = Key{{Field: DestAddr}}
	origDestKey = Key{{Field: OrigDestAddr}}
	origVIPKey  = Key{{Field: OrigDestAddr}, {Field: Protocol}, {Field: OrigDestPort}}
	origPortKey = Key{{Field: Protocol}, {Field: OrigDestPort}}
)

// LayoutChains returns the chains of a table, sorted by name: those that always are
// there, and of those that depend on the number of endpoints the ones named.
func LayoutChains(s *model.Settings, names []string) []Chain {
	var c chosen
	for _, name := range names {
		c.addName(name)
	}
	return layoutChains(s, c)
}

func layoutChains(s *model.Settings, c chosen) []Chain {
	chains := []Chain{
		{
			Name: preroutingChain, Hook: Prerouting, Prio: priorityDNAT,
			Rules: []Rule{{Verdict{Jump, servicesChain}}}, Comment: "from pods and from other machines",
		},
		{
			Name: outputChain, Hook: Output, Prio: priorityDNAT,
			Rules: []Rule{{Verdict{Jump, servicesChain}}}, Comment: "from the node itself",
		},
		{
			Name: postroutingChain, Hook: Postrouting, Prio: prioritySNAT,
			Rules: postroutingRules(s), Comment: "after an endpoint was chosen: is the source address replaced?",
		},
		{Name: servicesChain, Rules: servicesRules(), Comment: "dispatch: who is meant?"},
		{Name: rejectChain, Rules: []Rule{
			// ICMP errors are rate-limited by the kernel (net.ipv4.icmp_ratelimit): with
			// them alone, half of a burst of refused connections would time out.
			{MatchProtocol{model.TCP}, Reject{TCPReset: true}},
			{Reject{}},
		}, Comment: "no endpoint, or a port that the Service does not have"},
		{Name: masqueradeChain, Rules: []Rule{{Masquerade{}}}, Comment: "replies must come back through this node"},
	}
	for _, n := range c.addr {
		chains = append(chains, endpointsChain(endpointsChainName(n), vipKey, Endpoints, n))
	}
	for _, n := range c.node {
		chains = append(chains, endpointsChain(nodePortEndpointsChainName(n), nodePortKey, NodePortEndpoints, n))
	}
	slices.SortFunc(chains, func(a, b Chain) int { return strings.Compare(a.Name, b.Name) })
	return chains
}

func endpointsChainName(n int) string         { return fmt.Sprintf("endpoints-%d", n) }
func nodePortEndpointsChainName(n int) string { return fmt.Sprintf("nodeport-endpoints-%d", n) }

// endpointsChain chooses one of n endpoints. While a batch lands, a packet may still
// follow the old verdict and find the last slot already gone: it takes slot 0 then,
// rather than being lost.
//
// The rule for TCP alone does nothing that the next one would not. It stands there for
// nft 1.0.6, which makes the first rule of a file that looks into a map whose data is
// "typeof tcp dport" a rule for TCP only: with it, loading a listing again does not
// take all but one endpoint from UDP.
func endpointsChain(name string, key Key, set string, n int) Chain {
	choose := func(mod int) Statement {
		return DNAT{append(slices.Clone(key), Expr{RandomSlot, uint32(mod)}), set}
	}
	c := Chain{
		Name:    name,
		Rules:   []Rule{{MatchProtocol{model.TCP}, choose(n)}, {choose(n)}},
		Comment: fmt.Sprintf("choose one of %d", n),
	}
	if n > 1 {
		c.Rules = append(c.Rules, Rule{choose(1)})
	}
	return c
}

func servicesRules() []Rule {
	return []Rule{
		{VerdictMap{vipKey, ServiceIPs}},
		{InSet{destKey, NodePortIPs}, VerdictMap{nodePortKey, ServiceNodePorts}},
		{InSet{destKey, ClusterIPs}, Verdict{Goto, rejectChain}},
		{InSet{destKey, ServiceCIDRs}, Verdict{Kind: DropPacket}},
	}
}

func postroutingRules(s *model.Settings) []Rule {
	rules := []Rule{
		{MatchNotDNAT{}, Verdict{Kind: Return}},
		{InSet{Key{{Field: SourceAddr}, {Field: DestAddr}}, Hairpin}, Masquerade{}},
	}
	// The kernel must know the protocol before it takes "ct original proto-dst" into a
	// concatenation, hence a rule per protocol.
	protocols := []model.Protocol{model.TCP, model.UDP, model.SCTP}
	for _, p := range protocols {
		rules = append(rules, Rule{MatchProtocol{p}, VerdictMap{origVIPKey, SourceNAT}})
	}
	for _, p := range protocols {
		rules = append(rules, Rule{MatchProtocol{p}, InSet{origDestKey, NodePortIPs}, VerdictMap{origPortKey, NodePortSourceNAT}})
	}
	switch {
	case s.MasqueradeAll:
		rules = append(rules, Rule{InSet{origDestKey, ClusterIPs}, Masquerade{}})
	case slices.ContainsFunc(s.ClusterCIDRs, func(p netip.Prefix) bool { return p.Bits() == 0 }):
		// Everybody is a pod.
	case len(s.ClusterCIDRs) > 0:
		r := Rule{InSet{origDestKey, ClusterIPs}}
		for _, p := range s.ClusterCIDRs {
			r = append(r, MatchAddr{Field: SourceAddr, Prefix: p, Not: true})
		}
		rules = append(rules, append(r, Masquerade{}))
	}
	return rules
}
