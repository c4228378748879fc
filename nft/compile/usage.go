package compile

import (
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
)

// usage counts the service ports that use something for which there are chains that packets of established connections
// meet, too: only while it is used. It depends on the snapshot alone, so that a restart writes none.
type usage struct {
	affinity int // session affinity
	retry    int // connections of TCP are retried
	tried    int // of these, a client would get the same endpoint again
}

// count adds a service port by times 1, or removes it by -1.
func (u *usage) count(sp *model.ServicePort, by int) {
	if sp == nil || len(sp.Frontends) == 0 {
		return
	}
	isSticky := sp.Affinity > 0
	if isSticky {
		u.affinity += by
	}
	if sp.RetryAfter > 0 && sp.Name.Protocol == model.TCP {
		u.retry += by
		if isSticky || sp.Algorithm.HasTable() {
			u.tried += by
		}
	}
}

// used says of each whether it is used.
func (u usage) used() [3]bool { return [...]bool{u.affinity > 0, u.retry > 0, u.tried > 0} }

// Flowtables returns the flowtables that a table has.
func (o Options) Flowtables() []nft.Flowtable {
	if !o.FastPath {
		return nil
	}
	return []nft.Flowtable{{Name: nft.FastPath}}
}

// fastPathProtocols are those of which the kernel takes connections (nft_flow_offload_eval).
var fastPathProtocols = [...]model.Protocol{model.TCP, model.UDP}

// fastPathChains returns the chains with which a table has the fast path. They put connections onto it behind all other
// programs' rules at the hook forward, so that a packet which one of these drops does not. As in postrouting, the
// destination that the client asked for distinguishes our connections from those that others translate.
func (o Options) fastPathChains() []nft.Chain {
	if !o.FastPath {
		return nil
	}
	const services = "fast-path-services"
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
			Name: "fast-path", Hook: nft.Forward, Prio: priorityFastPath, Filter: true,
			Rules: []nft.Rule{{
				nft.MatchDNAT, nft.MatchEstablished, nft.MatchManyPackets, jumpTo(services),
			}},
			Comment: "connections with more than a few packets",
		},
		{Name: services, Rules: rules, Comment: "take connections to Services onto the fast path"},
	}
}
