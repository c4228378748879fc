package compile

import (
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
)

const (
	fastPathChain    = "fast-path"
	fastPathServices = "fast-path-services"
)

// Flowtables returns the flowtables that a table has.
func (o Options) Flowtables() []nft.Flowtable {
	if !o.FastPath {
		return nil
	}
	return []nft.Flowtable{{Name: nft.FastPath, Prio: nft.PriorityFilter}}
}

// Flowtables returns the flowtables of the ruleset.
func (r *Ruleset) Flowtables() []nft.Flowtable { return r.Options.Flowtables() }

// fastPathProtocols are those of which the kernel takes connections (nft_flow_offload_eval).
var fastPathProtocols = [...]model.Protocol{model.TCP, model.UDP}

// FastPathChains returns the chains with which a table has the fast path. They put connections onto it behind all rules
// of others at the hook forward, so that a packet which one of these drops does not. The destination that the client
// asked for tells our connections from those that others translate, as in postrouting: a container runtime may
// translate another port of the node to the same pod.
func (o Options) FastPathChains() []nft.Chain {
	if !o.FastPath {
		return nil
	}
	take := nft.AddFlow{Flowtable: nft.FastPath}
	var rules []nft.Rule
	for _, p := range fastPathProtocols {
		rules = append(rules, nft.Rule{protocolIs(p), inSet(origVIPKey, nft.FastPathIPs), take})
	}
	for _, p := range fastPathProtocols {
		rules = append(rules, nft.Rule{
			protocolIs(p), inSet(origDestKey, nft.NodePortIPs), inSet(origPortKey, nft.FastPathNodePorts), take,
		})
	}
	return []nft.Chain{
		{
			Name: fastPathChain, Hook: nft.Forward, Prio: priorityFastPath, Filter: true,
			Rules: []nft.Rule{{
				nft.MatchDNAT{}, nft.MatchEstablished{}, nft.MatchPackets{MoreThan: nft.FastPathAfter}, jumpTo(fastPathServices),
			}},
			Comment: "connections with more than a few packets",
		},
		{Name: fastPathServices, Rules: rules, Comment: "take connections to Services onto the fast path"},
	}
}
