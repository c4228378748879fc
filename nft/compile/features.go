package compile

import (
	"slices"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
)

// A feature is something for which the chains services and postrouting have rules only while something in the cluster
// uses it: even in an empty set, a rule looks up a key. The rules depend on the snapshot alone, not on earlier ones, so
// that a restart writes none.
type feature uint8

const (
	withAffinity  feature = iota // service ports with session affinity
	withTried                    // of withRetry, those that send a client to the same endpoint again
	withRetry                    // TCP service ports with connections that are retried
	withNodePorts                // frontends that are node ports
	withHairpins                 // endpoints on this node

	// For each protocol, in the order of protocols:
	withSourceRanges                                        // frontends for some sources only
	withSourceNAT         = withSourceRanges + numProtocols // frontends with an address that masquerade
	withNodePortSourceNAT = withSourceNAT + numProtocols    // node ports that do
	numFeatures           = withNodePortSourceNAT + numProtocols

	numProtocols = feature(len(protocols))
)

// features is a set of them.
type features uint16

func (f features) has(one feature) bool { return f&(1<<one) != 0 }

// protocols returns the protocols that have a feature.
func (f features) protocols(one feature) []model.Protocol {
	var list []model.Protocol
	for i, p := range protocols {
		if f.has(one + feature(i)) {
			list = append(list, p)
		}
	}
	return list
}

// usage counts the frontends that use a feature.
type usage [numFeatures]int

// count adds a service port by times 1, or removes it by -1.
func (u *usage) count(sp *model.ServicePort, by int) {
	if sp == nil {
		return
	}
	if sp.Affinity > 0 && len(sp.Frontends) > 0 {
		u[withAffinity] += by
	}
	if sp.RetryAfter > 0 && sp.Name.Protocol == model.TCP && len(sp.Frontends) > 0 {
		u[withRetry] += by
		if sp.Affinity > 0 || sp.Algorithm.HasTable() {
			u[withTried] += by
		}
	}
	for _, fe := range sp.Frontends {
		protocol := feature(slices.Index(protocols[:], fe.VIP.Protocol))
		if fe.Restricted {
			u[withSourceRanges+protocol] += by
		}
		sourceNAT := withSourceNAT
		if fe.Kind == model.NodePort {
			u[withNodePorts] += by
			sourceNAT = withNodePortSourceNAT
		}
		if fe.SourceNAT != model.MasqueradeOutside {
			u[sourceNAT+protocol] += by
		}
	}
}

// features returns those that are used with a snapshot's service ports, which were counted.
func (u *usage) features(s *model.FamilySnapshot) features {
	var f features
	for one, n := range u {
		if n > 0 {
			f |= 1 << one
		}
	}
	for range s.Hairpins() {
		return f | 1<<withHairpins
	}
	return f
}

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

// FastPathChains returns the chains with which a table has the fast path. They put connections onto it behind all other
// programs' rules at the hook forward, so that a packet which one of these drops does not. As in postrouting, the
// destination that the client asked for distinguishes our connections from those that others translate.
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
