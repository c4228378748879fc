package nft

import "github.com/vmapd/vmapd/model"

// Frontends are the names of the sets and maps of one kind of frontends, those with an address or node ports. Their
// keys begin with a frontend's, see Key.
type Frontends struct {
	NodePorts bool                               // else those with an address
	Dispatch  string                             // the verdict for a frontend
	Endpoints [len(model.TrafficPolicies)]string // the endpoints in a frontend's slots
	SourceNAT string                             // the verdict after DNAT: masquerade or not
	Affinity  string                             // the verdict for clients that may have an endpoint already
	Remember  string                             // the verdict after DNAT that stores a client's endpoint
	Counters  string                             // the number of connections to a frontend
	Refused   string                             // the number of those that are refused
	FastPath  string                             // those whose connections take the fast path
}

var (
	withAddress = &Frontends{
		Dispatch: ServiceIPs, Endpoints: [...]string{model.Cluster: Endpoints, model.Local: LocalEndpoints},
		SourceNAT: SourceNAT, Affinity: AffinityIPs, Remember: RememberIPs,
		Counters: ServiceCounters, Refused: RefusedCounters, FastPath: FastPathIPs,
	}
	ofNodePorts = &Frontends{
		NodePorts: true,
		Dispatch:  ServiceNodePorts,
		Endpoints: [...]string{model.Cluster: NodePortEndpoints, model.Local: NodePortLocalEndpoints},
		SourceNAT: NodePortSourceNAT, Affinity: AffinityNodePorts, Remember: RememberNodePorts,
		Counters: NodePortCounters, Refused: NodePortRefused, FastPath: FastPathNodePorts,
	}
)

// FrontendsOf returns the sets and maps of a kind of frontends.
func FrontendsOf(k model.FrontendKind) *Frontends {
	if k == model.NodePort {
		return ofNodePorts
	}
	return withAddress
}

// DispatchOf returns the map of the frontends that have slots in a map of endpoints.
func DispatchOf(endpoints string) string {
	if endpoints == NodePortEndpoints || endpoints == NodePortLocalEndpoints {
		return ServiceNodePorts
	}
	return ServiceIPs
}

// Key returns a frontend's key.
func (s *Frontends) Key(v model.VIP) string {
	key := make([]byte, 0, 24)
	if !s.NodePorts {
		key = AppendAddr(key, v.Addr)
	}
	return string(AppendPort(AppendProto(key, v.Protocol), v.Port))
}
