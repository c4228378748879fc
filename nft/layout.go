package nft

import (
	"slices"
	"strings"
	"time"

	"github.com/vmapd/vmapd/model"
)

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

// layout has all sets and maps that a table can have, sorted by name. Of those of single service ports, it has the
// beginning of the name. A set with a type that changes in a later version must get another name: sets of the same name
// can't be exchanged without losing what they hold. For the same reason, a set keeps its comment.
//
// Counters have sets of their own: an element of a verdict map is replaced whenever the
// number of endpoints changes, and would count from 0 again. The name of the service port is
// the comment of its counter, so that a frontend which moves to another Service does count
// from 0. A lookup updates the counter of an element since Linux 5.7 (nft_lookup_eval).
var layout = []Set{
	clients.named(affinityOf[model.Cluster], ""),
	endpoints.named(AffinityEndpoints, "of Services with session affinity; the numbers stand for a map affinity-..."),
	vipVerdicts.named(AffinityIPs, "with session affinity"),
	nodePortVerdicts.named(AffinityNodePorts, "with session affinity"),
	addrs.named(ClusterIPs, "refuse connections to ports that no Service has"),
	vipSlots.named(Endpoints, "endpoints: slots 0 to N-1 of each service address"),
	vips.named(FastPathIPs, "with established connections on the fast path"),
	nodePorts.named(FastPathNodePorts, "with established connections on the fast path"),
	vips.named(FirewallIPs, "for some sources only, see source-ranges"),
	gone.named(GoneEndpoints, "removed from a Service with affinity: not chosen again, see remember-..."),
	addrPairs.named(Hairpin, "endpoints on this node that connect to themselves"),
	clients.named(affinityOf[model.Local], ""),
	vipSlots.named(LocalEndpoints, "endpoints on this node: slots 0 to n-1 of each service address"),
	nodePortCounters.named(NodePortCounters, "new connections to node ports"),
	nodePortSlots.named(NodePortEndpoints, "endpoints: slots 0 to N-1 of each node port"),
	addrs.named(NodePortIPs, "addresses of node ports"),
	nodePortSlots.named(NodePortLocalEndpoints, "endpoints on this node: slots 0 to n-1 of each node port"),
	nodePortVerdicts.named(NodePortSourceNAT, "node ports with masquerade"),
	vipVerdicts.named(RememberIPs, "remember the endpoint of each client"),
	nodePortVerdicts.named(RememberNodePorts, "remember the endpoint of each client"),
	cidrs.named(ServiceCIDRs, "drop connections to addresses that no Service has"),
	vipCounters.named(ServiceCounters, "new connections to service addresses"),
	vips.named(ServiceEndpoints, "with INVALID packets dropped"),
	vipVerdicts.named(ServiceIPs, "cluster IPs, external IPs, load-balancer addresses"),
	nodePortVerdicts.named(ServiceNodePorts, "node ports"),
	vipVerdicts.named(SourceNAT, "service addresses with masquerade"),
	sources.named(SourceRanges(model.SCTP), "allowed sources of firewall-ips"),
	sources.named(SourceRanges(model.TCP), "allowed sources of firewall-ips"),
	sources.named(SourceRanges(model.UDP), "allowed sources of firewall-ips"),
	tried.named(Tried, "client, its port, frontend: first packets that came again because no answer did"),
}

func (s Set) named(name, comment string) Set {
	s.Name, s.Comment = name, comment
	return s
}

// DeclarationOf returns the declaration of a set of the layout by its name; for another name, its key is nil.
func DeclarationOf(name string) Set {
	for _, s := range layout {
		if s.Name == name || isBeginning(s.Name) && strings.Contains(name, "/") && strings.HasPrefix(name, s.Name) {
			return s.named(name, s.Comment)
		}
	}
	return Set{Name: name}
}

// SharedSets returns all sets and maps but those of single service ports, sorted by name.
func SharedSets() []Set {
	return slices.DeleteFunc(slices.Clone(layout), func(s Set) bool { return isBeginning(s.Name) })
}

// isBeginning reports whether a name is the beginning of those that single service ports have.
func isBeginning(name string) bool { return strings.HasSuffix(name, "-") }

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

func (s *Frontends) lead(set string) bool {
	return set == s.Dispatch || set == s.SourceNAT || set == s.Affinity || set == s.Remember
}

// Key returns a frontend's key.
func (s *Frontends) Key(v model.VIP) string {
	key := make([]byte, 0, 24)
	if !s.NodePorts {
		key = AppendAddr(key, v.Addr)
	}
	return string(AppendPort(AppendProto(key, v.Protocol), v.Port))
}
