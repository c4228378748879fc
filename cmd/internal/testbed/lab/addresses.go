package lab

// The address plan of this repository's tests and demonstrations. Every IPv4 address has an IPv6 twin that is read like
// it; only documentation and private ranges occur, so a packet that escaped could reach no host.
//
// They are text, because a manifest needs text; netip.MustParseAddr and
// netip.MustParsePrefix accept each of them.
const (
	PodRange4          = "10.0.0.0/8"
	PodRange6          = "fd00:10::/64"
	ClusterIPRange4    = "172.30.0.0/16"
	ClusterIPRange6    = "fd00:172:30::/112"
	NodeRange4         = "192.168.0.0/24"
	NodeRange6         = "fd00:192:168::/64"
	LoadBalancerRange4 = "192.168.98.0/24"
	LoadBalancerRange6 = "fd00:192:168:98::/64"
	ExternalIPRange4   = "192.168.99.0/24"
	ExternalIPRange6   = "fd00:192:168:99::/64"
	OutsideRange4      = "203.0.113.0/24"
	OutsideRange6      = "2001:db8:203::/64"

	// The node's primary and only addresses.
	NodeIP4 = "192.168.0.2"
	NodeIP6 = "fd00:192:168::2"

	ClientIP4 = "203.0.113.9"
	ClientIP6 = "2001:db8:203::9"

	// The client's second address, in the other half of the outside: it connects from there only with AskFrom.
	SecondClientIP4 = "203.0.113.129"
	SecondClientIP6 = "2001:db8:203::81"

	// FirstPodIP4 and FirstPodIP6 are the first pod's addresses; each later
	// pod has the next ones. Addresses of removed pods are not used again.
	FirstPodIP4 = "10.0.0.2"
	FirstPodIP6 = "fd00:10::2"

	// NodeName is the node's name, as a Node object and an EndpointSlice
	// would spell it.
	NodeName = "node-1"

	// UplinkName is the node's interface towards the client; PodLinkPrefix is
	// the prefix of the node's interfaces towards pods (veth1, veth2, …).
	// Inside a pod and in the client the interface is called eth0.
	UplinkName    = "eth0"
	PodLinkPrefix = "veth"
)
