package nft

import (
	"strings"
	"time"

	"github.com/vmapd/vmapd/model"
)

// A layoutSet is a row of the table of sets and maps.
type layoutSet struct {
	name    string // of an own set, its beginning
	of      Set
	own     bool // each belongs to the service port that it is named after
	comment string
}

// TriedFor is how long first packets that got no answer are remembered, since the last one. TCP sends its first packet
// again after one second, and then each second four times (tcp_syn_linear_timeouts, Linux 6.5), or after two, four and
// eight seconds; a resolver asks again after five.
const TriedFor = 10 * time.Second

// Types of sets: declarations without names.
var (
	addrs            = Set{Key: []Type{Addr}}
	addrPairs        = Set{Key: []Type{Addr, Addr}}
	cidrs            = Set{Key: []Type{Addr}, Interval: true}
	sources          = Set{Key: []Type{Addr, Service, Addr}, Interval: true}
	clients          = Set{Key: []Type{Addr}, Data: []Type{Addr, Service}, Dynamic: true}
	endpoints        = Set{Key: []Type{Slot, Slot, Addr, Service}}
	tried            = Set{Key: []Type{Addr, Service, Addr, Service}, Dynamic: true, Timeout: TriedFor}
	gone             = Set{Key: []Type{Addr, Service}, Dynamic: true, Timeout: goneFor}
	vips             = Set{Key: []Type{Addr, Proto, Service}}
	nodePorts        = Set{Key: []Type{Proto, Service}}
	vipVerdicts      = Set{Key: []Type{Addr, Proto, Service}, Verdicts: true}
	vipSlots         = Set{Key: []Type{Addr, Proto, Service, Slot}, Data: []Type{Addr, Service}}
	vipCounters      = Set{Key: []Type{Addr, Proto, Service}, Counter: true}
	nodePortVerdicts = Set{Key: []Type{Proto, Service}, Verdicts: true}
	nodePortSlots    = Set{Key: []Type{Proto, Service, Slot}, Data: []Type{Addr, Service}}
	nodePortCounters = Set{Key: []Type{Proto, Service}, Counter: true}
)

// layout has all sets and maps that a table can have, sorted by name. A set with a type that changes in a later version
// must get another name: sets of the same name can't be exchanged without losing what they hold. For the same reason,
// a set keeps its comment.
//
// Counters have sets of their own: an element of a verdict map is replaced whenever the
// number of endpoints changes, and would count from 0 again. The name of the service port is
// the comment of its counter, so that a frontend which moves to another Service does count
// from 0. A lookup updates the counter of an element since Linux 5.7 (nft_lookup_eval).
var layout = []layoutSet{
	{affinityOf[model.Cluster], clients, true, ""},
	{AffinityEndpoints, endpoints, false, "of Services with session affinity; the numbers stand for a map affinity-..."},
	{AffinityIPs, vipVerdicts, false, "with session affinity"},
	{AffinityNodePorts, nodePortVerdicts, false, "with session affinity"},
	{ClusterIPs, addrs, false, "refuse connections to ports that no Service has"},
	{Endpoints, vipSlots, false, "endpoints: slots 0 to N-1 of each service address"},
	{FastPathIPs, vips, false, "with established connections on the fast path"},
	{FastPathNodePorts, nodePorts, false, "with established connections on the fast path"},
	{FirewallIPs, vips, false, "for some sources only, see source-ranges"},
	{GoneEndpoints, gone, false, "removed from a Service with affinity: not chosen again, see remember-..."},
	{Hairpin, addrPairs, false, "endpoints on this node that connect to themselves"},
	{affinityOf[model.Local], clients, true, ""},
	{LocalEndpoints, vipSlots, false, "endpoints on this node: slots 0 to n-1 of each service address"},
	{NodePortCounters, nodePortCounters, false, "new connections to node ports"},
	{NodePortEndpoints, nodePortSlots, false, "endpoints: slots 0 to N-1 of each node port"},
	{NodePortIPs, addrs, false, "addresses of node ports"},
	{NodePortLocalEndpoints, nodePortSlots, false, "endpoints on this node: slots 0 to n-1 of each node port"},
	{NodePortSourceNAT, nodePortVerdicts, false, "node ports with masquerade"},
	{RememberIPs, vipVerdicts, false, "remember the endpoint of each client"},
	{RememberNodePorts, nodePortVerdicts, false, "remember the endpoint of each client"},
	{ServiceCIDRs, cidrs, false, "drop connections to addresses that no Service has"},
	{ServiceCounters, vipCounters, false, "new connections to service addresses"},
	{ServiceEndpoints, vips, false, "with INVALID packets dropped"},
	{ServiceIPs, vipVerdicts, false, "cluster IPs, external IPs, load-balancer addresses"},
	{ServiceNodePorts, nodePortVerdicts, false, "node ports"},
	{SourceNAT, vipVerdicts, false, "service addresses with masquerade"},
	{SourceRanges(model.SCTP), sources, false, "allowed sources of firewall-ips"},
	{SourceRanges(model.TCP), sources, false, "allowed sources of firewall-ips"},
	{SourceRanges(model.UDP), sources, false, "allowed sources of firewall-ips"},
	{Tried, tried, false, "client, its port, frontend: first packets that came again because no answer did"},
}

// layoutOf returns the row for the name of a set, the zero value if there is none.
func layoutOf(name string) layoutSet {
	for _, s := range layout {
		if s.name == name || s.own && isOwn(name) && strings.HasPrefix(name, s.name) {
			return s
		}
	}
	return layoutSet{}
}

func (s layoutSet) declaration(name string) Set {
	declared := s.of
	declared.Name, declared.Comment = name, s.comment
	return declared
}

// DeclarationOf returns the declaration of a set of the layout by its name; for another name, its key is nil.
func DeclarationOf(name string) Set { return layoutOf(name).declaration(name) }

// SharedSets returns all sets and maps but those of single service ports, sorted by name.
func SharedSets() []Set {
	sets := make([]Set, 0, len(layout))
	for _, s := range layout {
		if !s.own {
			sets = append(sets, s.declaration(s.name))
		}
	}
	return sets
}

// FastPath is the name of the flowtable with the Service connections on the fast
// path: from the ingress of one device to another, past all chains, routing and connection tracking.
const FastPath = "fast-path"

// FastPathAfter is the number of packets, in both directions, after which a connection is taken. Most
// connections are shorter, and for each one that is taken the kernel makes and frees an entry.
const FastPathAfter = 20

// Flowtable is the declaration of a flowtable. Its devices are no part of a ruleset: they come and go
// with pods, and whoever knows them puts them into the table.
type Flowtable struct {
	Name    string
	Devices []string // of one that was read
}

// Declaration returns the lines inside its braces.
func (Flowtable) Declaration() []string {
	// Without a counter, the packets would be missing in connection tracking's own counters.
	return []string{"hook ingress priority filter", "counter"}
}

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
	FastPath  string                             // those on the fast path
}

var (
	withAddress = &Frontends{
		Dispatch: ServiceIPs, Endpoints: [...]string{model.Cluster: Endpoints, model.Local: LocalEndpoints},
		SourceNAT: SourceNAT, Affinity: AffinityIPs, Remember: RememberIPs,
		Counters: ServiceCounters, FastPath: FastPathIPs,
	}
	ofNodePorts = &Frontends{
		NodePorts: true,
		Dispatch:  ServiceNodePorts,
		Endpoints: [...]string{model.Cluster: NodePortEndpoints, model.Local: NodePortLocalEndpoints},
		SourceNAT: NodePortSourceNAT, Affinity: AffinityNodePorts, Remember: RememberNodePorts,
		Counters: NodePortCounters, FastPath: FastPathNodePorts,
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
