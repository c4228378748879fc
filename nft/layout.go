package nft

import (
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// LayoutSets returns the sets and maps that every table has, sorted by name. A set whose
// type changes in a later version must get another name: sets of the same name can't be
// exchanged without losing what they hold.
func (o Options) LayoutSets() []Set {
	list := commonSets()
	if o.Counters {
		list = append(list, counterSets()...)
		slices.SortFunc(list, func(a, b Set) int { return strings.Compare(a.Name, b.Name) })
	}
	return list
}

func commonSets() []Set {
	service, nodePort := []Type{Addr, Proto, Service}, []Type{Proto, Service}
	endpoint := []Type{Addr, Service}
	serviceSlot, nodePortSlot := []Type{Addr, Proto, Service, Slot}, []Type{Proto, Service, Slot}
	return []Set{
		{Name: AffinityIPs, Key: service, Verdicts: true, Comment: "whose clients come back to the same endpoint"},
		{Name: AffinityNodePorts, Key: nodePort, Verdicts: true, Comment: "whose clients come back to the same endpoint"},
		{Name: ClusterIPs, Key: []Type{Addr}, Comment: "refuse connections to ports that no Service has"},
		{Name: Endpoints, Key: serviceSlot, Data: endpoint, Comment: "who answers: slots 0 to N-1 of each service address"},
		{Name: FirewallIPs, Key: service, Comment: "for some sources only, see source-ranges"},
		{Name: Hairpin, Key: []Type{Addr, Addr}, Comment: "endpoints on this node that connect to themselves"},
		{
			Name: LocalEndpoints, Key: serviceSlot, Data: endpoint,
			Comment: "who answers on this node: slots 0 to n-1 of each service address",
		},
		{Name: NodePortEndpoints, Key: nodePortSlot, Data: endpoint, Comment: "who answers: slots 0 to N-1 of each node port"},
		{Name: NodePortIPs, Key: []Type{Addr}, Comment: "where node ports answer"},
		{
			Name: NodePortLocalEndpoints, Key: nodePortSlot, Data: endpoint,
			Comment: "who answers on this node: slots 0 to n-1 of each node port",
		},
		{
			Name: NodePortSourceNAT, Key: nodePort, Verdicts: true,
			Comment: "which node ports need the node's address as source",
		},
		{Name: RememberIPs, Key: service, Verdicts: true, Comment: "whose clients to remember"},
		{Name: RememberNodePorts, Key: nodePort, Verdicts: true, Comment: "whose clients to remember"},
		{Name: ServiceCIDRs, Key: []Type{Addr}, Interval: true, Comment: "drop what no Service has"},
		{Name: ServiceEndpoints, Key: service, Comment: "whose packets are dropped if they belong to no connection"},
		{
			Name: ServiceIPs, Key: service, Verdicts: true,
			Comment: "cluster IPs, external IPs, load-balancer addresses",
		},
		{Name: ServiceNodePorts, Key: nodePort, Verdicts: true, Comment: "node ports"},
		{
			Name: SourceNAT, Key: service, Verdicts: true,
			Comment: "which service addresses need the node's address as source",
		},
		sourceRanges(model.SCTP), sourceRanges(model.TCP), sourceRanges(model.UDP),
	}
}

func sourceRanges(p model.Protocol) Set {
	return Set{Name: SourceRanges(p), Key: []Type{Addr, Service, Addr}, Interval: true, Comment: "who may connect to firewall-ips"}
}

var layoutSets = Options{Counters: true}.LayoutSets()

// DeclarationOf returns the declaration of a set of ours by its name; its key is nil if it is none.
func DeclarationOf(name string) Set {
	for _, s := range layoutSets {
		if s.Name == name {
			return s
		}
	}
	switch {
	case strings.HasPrefix(name, affinityBoth):
		return Set{Name: name, Key: []Type{Addr, Service}}
	case strings.HasPrefix(name, affinityOf[model.Cluster]), strings.HasPrefix(name, affinityOf[model.Local]):
		return Set{Name: name, Key: []Type{Addr}, Data: []Type{Addr, Service}, Dynamic: true}
	}
	return Set{Name: name}
}

// isEndpoints reports whether a map's keys end with a slot.
func isEndpoints(set string) bool {
	switch set {
	case Endpoints, LocalEndpoints, NodePortEndpoints, NodePortLocalEndpoints:
		return true
	}
	return false
}

// frontendMaps are the maps that serve one kind of frontend: those keyed by address,
// protocol and port or, for node ports, those keyed by protocol and port.
type frontendMaps struct {
	nodePort                                          bool
	dispatch, sourceNAT, affinity, remember, counters string
	endpoints                                         [len(model.TrafficPolicies)]string
}

var (
	addrMaps = frontendMaps{
		dispatch: ServiceIPs, sourceNAT: SourceNAT, affinity: AffinityIPs, remember: RememberIPs, counters: ServiceCounters,
		endpoints: [...]string{model.Cluster: Endpoints, model.Local: LocalEndpoints},
	}
	nodePortMaps = frontendMaps{
		nodePort: true, dispatch: ServiceNodePorts, sourceNAT: NodePortSourceNAT,
		affinity: AffinityNodePorts, remember: RememberNodePorts, counters: NodePortCounters,
		endpoints: [...]string{model.Cluster: NodePortEndpoints, model.Local: NodePortLocalEndpoints},
	}
)

func mapsFor(k model.FrontendKind) *frontendMaps {
	if k == model.NodePort {
		return &nodePortMaps
	}
	return &addrMaps
}

// key returns a frontend's key in the maps.
func (m *frontendMaps) key(v model.VIP) string {
	key := make([]byte, 0, 24)
	if !m.nodePort {
		key = AppendAddr(key, v.Addr)
	}
	return string(AppendPort(AppendProto(key, v.Protocol), v.Port))
}

// keyExprs is key for a packet.
func (m *frontendMaps) keyExprs() Key {
	if m.nodePort {
		return nodePortKey
	}
	return vipKey
}
