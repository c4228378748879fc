package nft

import (
	"strings"

	"github.com/vmapd/vmapd/model"
)

// A layoutSet is a row of the table of sets and maps.
type layoutSet struct {
	name    string // in scopeOwn its beginning
	of      Set
	scope   scope
	role    role
	comment string
}

// A scope says which objects the elements of a set belong to.
type scope uint8

const (
	noScope       scope = iota // not a set of the layout
	scopeAddr                  // frontends with an address; the key begins with theirs
	scopeNodePort              // frontends that are node ports; the key begins with theirs
	scopeCluster               // Services, by their cluster IP
	scopeService               // service ports; the key does not tell which
	scopeOwn                   // the service port that the set is named after, see affinity and turns
	scopeEndpoint              // endpoints, of any number of Services
	scopeNode                  // the node
	scopes
)

// A role is the purpose of a set. Frontends with an address and node ports have sets of the
// same roles.
type role uint8

const (
	otherRole          role = iota
	roleDispatch            // the verdict for a frontend
	roleEndpoints           // the endpoints in a frontend's slots
	roleLocalEndpoints      // those on this node
	roleSourceNAT           // the verdict after DNAT: masquerade or not
	roleAffinity            // the verdict for clients that may have an endpoint already
	roleRemember            // the verdict after DNAT that stores a client's endpoint
	roleCounters            // the number of connections to a frontend
	roleRefused             // the number of those that are refused
	roleFastPath            // those whose connections take the fast path
	roles
)

// endpointsRole returns the role of the maps of endpoints for a traffic policy.
func endpointsRole(l model.TrafficPolicy) role { return roleEndpoints + role(l) }

// Types of sets: declarations without names.
var (
	addrs            = Set{Key: []Type{Addr}}
	addrPairs        = Set{Key: []Type{Addr, Addr}}
	cidrs            = Set{Key: []Type{Addr}, Interval: true}
	sources          = Set{Key: []Type{Addr, Service, Addr}, Interval: true}
	clients          = Set{Key: []Type{Addr}, Data: []Type{Addr, Service}, Dynamic: true}
	endpoints        = Set{Key: []Type{Addr, Service}}
	removed          = Set{Key: []Type{Addr, Proto, Service}, Dynamic: true, Timeout: removedFor}
	vips             = Set{Key: []Type{Addr, Proto, Service}}
	nodePorts        = Set{Key: []Type{Proto, Service}}
	vipVerdicts      = Set{Key: []Type{Addr, Proto, Service}, Verdicts: true}
	vipSlots         = Set{Key: []Type{Addr, Proto, Service, Slot}, Data: []Type{Addr, Service}}
	vipCounters      = Set{Key: []Type{Addr, Proto, Service}, Counter: true}
	nodePortVerdicts = Set{Key: []Type{Proto, Service}, Verdicts: true}
	nodePortSlots    = Set{Key: []Type{Proto, Service, Slot}, Data: []Type{Addr, Service}}
	nodePortCounters = Set{Key: []Type{Proto, Service}, Counter: true}
)

// layout has all sets and maps that a table can have, sorted by name. A set whose type
// changes in a later version must get another name: sets of the same name can't be exchanged
// without losing what they hold.
//
// Counters have sets of their own: an element of a verdict map is replaced whenever the
// number of endpoints changes, and would count from 0 again. The name of the service port is
// the comment of its counter, so that a frontend which moves to another Service does count
// from 0. A lookup updates the counter of an element since Linux 5.7 (nft_lookup_eval).
var layout = []layoutSet{
	{affinityOf[model.Cluster], clients, scopeOwn, otherRole, ""},
	{AffinityIPs, vipVerdicts, scopeAddr, roleAffinity, "whose clients come back to the same endpoint"},
	{AffinityNodePorts, nodePortVerdicts, scopeNodePort, roleAffinity, "whose clients come back to the same endpoint"},
	{ClusterIPs, addrs, scopeCluster, otherRole, "refuse connections to ports that no Service has"},
	{Endpoints, vipSlots, scopeAddr, roleEndpoints, "who answers: slots 0 to N-1 of each service address"},
	{FastPathIPs, vips, scopeAddr, roleFastPath, "whose established connections take the fast path"},
	{FastPathNodePorts, nodePorts, scopeNodePort, roleFastPath, "whose established connections take the fast path"},
	{FirewallIPs, vips, scopeAddr, otherRole, "for some sources only, see source-ranges"},
	{Hairpin, addrPairs, scopeEndpoint, otherRole, "endpoints on this node that connect to themselves"},
	{affinityOf[model.Local], clients, scopeOwn, otherRole, ""},
	{LocalEndpoints, vipSlots, scopeAddr, roleLocalEndpoints, "who answers on this node: slots 0 to n-1 of each service address"},
	{ownEndpointsOf[model.Local], endpoints, scopeOwn, otherRole, ""},
	{NodePortCounters, nodePortCounters, scopeNodePort, roleCounters, "new connections to node ports"},
	{NodePortEndpoints, nodePortSlots, scopeNodePort, roleEndpoints, "who answers: slots 0 to N-1 of each node port"},
	{NodePortIPs, addrs, scopeNode, otherRole, "where node ports answer"},
	{NodePortLocalEndpoints, nodePortSlots, scopeNodePort, roleLocalEndpoints, "who answers on this node: slots 0 to n-1 of each node port"},
	{NodePortRefused, nodePortCounters, scopeNodePort, roleRefused, "connections to node ports that are refused"},
	{NodePortSourceNAT, nodePortVerdicts, scopeNodePort, roleSourceNAT, "which node ports need the node's address as source"},
	{ownEndpointsOf[model.Cluster], endpoints, scopeOwn, otherRole, ""},
	{RefusedCounters, vipCounters, scopeAddr, roleRefused, "connections to service addresses that are refused"},
	{RememberIPs, vipVerdicts, scopeAddr, roleRemember, "whose clients to remember"},
	{RememberNodePorts, nodePortVerdicts, scopeNodePort, roleRemember, "whose clients to remember"},
	{RemovedEndpoints, removed, scopeEndpoint, otherRole, "taken from a Service with affinity: no client is sent there, see remember-..."},
	{ServiceCIDRs, cidrs, scopeNode, otherRole, "drop what no Service has"},
	{ServiceCounters, vipCounters, scopeAddr, roleCounters, "new connections to service addresses"},
	{ServiceEndpoints, vips, scopeEndpoint, otherRole, "whose packets are dropped if they belong to no connection"},
	{ServiceIPs, vipVerdicts, scopeAddr, roleDispatch, "cluster IPs, external IPs, load-balancer addresses"},
	{ServiceNodePorts, nodePortVerdicts, scopeNodePort, roleDispatch, "node ports"},
	{SourceNAT, vipVerdicts, scopeAddr, roleSourceNAT, "which service addresses need the node's address as source"},
	{SourceRanges(model.SCTP), sources, scopeService, otherRole, "who may connect to firewall-ips"},
	{SourceRanges(model.TCP), sources, scopeService, otherRole, "who may connect to firewall-ips"},
	{SourceRanges(model.UDP), sources, scopeService, otherRole, "who may connect to firewall-ips"},
}

// layoutOf returns the row for the name of a set, the zero value if there is none.
func layoutOf(name string) layoutSet {
	for _, s := range layout {
		if s.name == name || s.scope == scopeOwn && isOwn(name) && strings.HasPrefix(name, s.name) {
			return s
		}
	}
	return layoutSet{}
}

func (s layoutSet) declaration(name string) Set {
	declared := s.of
	declared.Name, declared.Comment = name, s.comment
	if declared.hasSlots() {
		declared.PortOf = model.TCP
	}
	return declared
}

// DeclarationOf returns the declaration of a set of the layout by its name; for another name,
// its key is nil.
func DeclarationOf(name string) Set { return layoutOf(name).declaration(name) }

// LayoutSets returns the sets and maps that every table has, sorted by name.
func (o Options) LayoutSets() []Set {
	sets := make([]Set, 0, len(layout))
	for _, s := range layout {
		if s.scope != scopeOwn && (o.Counters || !s.of.Counter) && (o.FastPath || s.role != roleFastPath) {
			sets = append(sets, s.declaration(s.name))
		}
	}
	return sets
}

var setNames = namesByRole() //nolint:gochecknoglobals // another view of layout

func namesByRole() (names [scopes][roles]string) {
	for _, s := range layout {
		names[s.scope][s.role] = s.name
	}
	return names
}

// scopeOf returns the scope of the sets with one kind of frontend.
func scopeOf(k model.FrontendKind) scope {
	if k == model.NodePort {
		return scopeNodePort
	}
	return scopeAddr
}

// set returns the name of the set of that role.
func (s scope) set(r role) string { return setNames[s][r] }

// key returns a frontend's key in the sets.
func (s scope) key(v model.VIP) string {
	key := make([]byte, 0, 24)
	if s == scopeAddr {
		key = AppendAddr(key, v.Addr)
	}
	return string(AppendPort(AppendProto(key, v.Protocol), v.Port))
}

// keyExprs returns the expressions that make a frontend's key of a packet.
func (s scope) keyExprs() Key {
	if s == scopeNodePort {
		return nodePortKey
	}
	return vipKey
}

// prefix returns the beginning of the names of these frontends' chains.
func (s scope) prefix() string {
	if s == scopeNodePort {
		return "nodeport-"
	}
	return ""
}
