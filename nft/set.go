package nft

import (
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/vmapd/vmapd/model"
)

// TableName is the name of our table in each family. No other table is changed.
const TableName = "vmapd"

// TableComment is the table's comment.
const TableComment = "Kubernetes Services, by vmapd"

// Names of sets and maps. Those with the same meaning as in kube-proxy's table have the same name there.
const (
	ServiceIPs        = "service-ips"
	ServiceNodePorts  = "service-nodeports"
	Endpoints         = "endpoints"
	NodePortEndpoints = "nodeport-endpoints"
	SourceNAT         = "source-nat"
	NodePortSourceNAT = "nodeport-source-nat"
	ClusterIPs        = "cluster-ips"
	NodePortIPs       = "nodeport-ips"
	ServiceCIDRs      = "service-cidrs"
	Hairpin           = "hairpin"

	LocalEndpoints         = "local-endpoints"
	NodePortLocalEndpoints = "nodeport-local-endpoints"
	FirewallIPs            = "firewall-ips"
	AffinityIPs            = "affinity-ips"
	AffinityNodePorts      = "affinity-nodeports"
	RememberIPs            = "remember-ips"
	RememberNodePorts      = "remember-nodeports"
	AffinityEndpoints      = "affinity-endpoints"
	GoneEndpoints          = "gone-endpoints"
	ServiceEndpoints       = "service-endpoints"

	FastPathIPs       = "fast-path-ips"
	FastPathNodePorts = "fast-path-nodeports"

	ServiceCounters  = "service-counters"
	NodePortCounters = "nodeport-counters"

	Tried = "tried"
)

// SourceRanges is the name of the set of sources that may connect to the addresses in
// FirewallIPs. Each protocol has its own: nft puts a protocol into a key of ranges by a
// byteorder expression, which newer kernels refuse (Debian's 6.12.115).
func SourceRanges(p model.Protocol) string { return "source-ranges-" + p.String() }

// Set is the declaration of a set or map.
type Set struct {
	Name     string
	Key      []Type
	Data     []Type        // nil for sets and verdict maps
	Verdicts bool          // a verdict map
	Interval bool          // keys are ranges: of several components, in the last one
	Dynamic  bool          // elements time out; packets may add some
	Timeout  time.Duration // of elements that have none of their own
	Counter  bool          // each element counts the packets that are looked up
	Comment  string
}

// HasSlots reports whether keys end with a slot.
func (s Set) HasSlots() bool { return len(s.Key) > 0 && s.Key[len(s.Key)-1] == Slot }

// Type is the type of one component of a set's key or data.
type Type uint8

// The types.
const (
	Addr    Type = iota // ipv4_addr or ipv6_addr
	Proto               // inet_proto
	Service             // inet_service
	Slot                // an integer: chosen by numgen, or a number
)

// Chain is a chain and its rules.
type Chain struct {
	Name    string
	Hook    Hook  // NoHook for regular chains
	Prio    int32 // base chains only
	Filter  bool  // base chains only: of type filter, not nat
	Drop    bool  // base chains only: the policy, never one of ours, is to drop
	Rules   []Rule
	Comment string // shown by render; the kernel does not keep it
}

// Type is the type of a base chain.
func (c Chain) Type() string {
	if c.Filter {
		return "filter"
	}
	return "nat"
}

// Priorities that the kernel names (enum nf_ip_hook_priorities).
const (
	PriorityDNAT   int32 = -100
	PriorityFilter int32 = 0
	PrioritySNAT   int32 = 100
)

// Hook says where the kernel enters a base chain.
type Hook uint8

// The hooks.
const (
	NoHook Hook = iota
	Prerouting
	Output
	Postrouting
	Input
	Forward
)

func (h Hook) String() string {
	return [...]string{"", "prerouting", "output", "postrouting", "input", "forward"}[h]
}

// Element is one element of a set or map. Key and Data have the form of the kernel's
// registers (see [AppendAddr]), so comparing, sorting and encoding need no conversion.
type Element struct {
	Key string
	// End is the end of a range in interval sets, in the kernel's form: with one component,
	// the first key behind the range, "" if there is none; with several, its last key.
	End     string
	Data    string
	Verdict Verdict
	Comment string
}

// Service ports with session affinity have maps of their own: which endpoint each client has, for both lists of
// endpoints. No name of a namespace makes a name look like one of another kind, because none of these words begins with
// another one.
var affinityOf = [...]string{model.Cluster: "affinity-", model.Local: "local-affinity-"}

// goneFor is how long no client is sent to an endpoint that was taken away: as long as the longest timeout
// that the API server admits (sessionAffinityConfig.clientIP.timeoutSeconds).
const goneFor = 24 * time.Hour

// AffinityMap is the name of the map that has the clients of a service port with session affinity, for one of
// its lists of endpoints.
func AffinityMap(port model.ServicePortName, list model.TrafficPolicy) string {
	return affinityOf[list] + OwnName(port)
}

// affinityNumbers are the two numbers in AffinityEndpoints that stand for such a map: a hash of its name, for which
// nobody can find another name.
func affinityNumbers(port model.ServicePortName, list model.TrafficPolicy) (a, b uint32) {
	h := sha256.Sum256([]byte(AffinityMap(port, list)))
	return binary.BigEndian.Uint32(h[:]), binary.BigEndian.Uint32(h[4:])
}

// AffinityEndpoint is the key in AffinityEndpoints of an endpoint that a client in such a map may have: data there.
func AffinityEndpoint(port model.ServicePortName, list model.TrafficPolicy, data string) string {
	a, b := affinityNumbers(port, list)
	return string(append(AppendSlot(AppendSlot(nil, a), b), data...))
}

// AffinityKey is the key by which a packet is looked up there, behind DNAT.
func AffinityKey(port model.ServicePortName, list model.TrafficPolicy) Key {
	a, b := affinityNumbers(port, list)
	return Key{{Field: Constant, Value: a}, {Field: Constant, Value: b}, {Field: DestAddr}, {Field: DestPort}}
}

// Leads reports whether elements of a set send packets somewhere, or refuse them: they are written behind what they
// lead to, and those of a Service at once.
func Leads(set string) bool {
	return withAddress.lead(set) || ofNodePorts.lead(set) || set == FirewallIPs || set == ClusterIPs || set == ServiceCIDRs
}

// LeadsByNodePort is Leads for the sets that have node ports as keys.
func LeadsByNodePort(set string) bool { return ofNodePorts.lead(set) }

// Endpoint returns the endpoint in an element of such a map.
func Endpoint(data string) (netip.AddrPort, bool) {
	if len(data) <= RegisterSize {
		return netip.AddrPort{}, false
	}
	at := len(data) - RegisterSize
	addr, ok := netip.AddrFromSlice([]byte(data[:at]))
	return netip.AddrPortFrom(addr, uint16(data[at])<<8|uint16(data[at+1])), ok
}

// OwnName is the end of the names of a service port's own sets and chains. No name of a Service or port has a slash.
func OwnName(n model.ServicePortName) string {
	return n.Namespace + "/" + n.Name + "/" + n.Protocol.String() + "/" + n.Port
}
