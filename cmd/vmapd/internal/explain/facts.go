package explain

// Explanation explains what happens to a connection. Its fields are the facts; Steps, Next and
// Conclusion are the same facts in sentences. The names in JSON do not change.
type Explanation struct {
	Node        Node          `json:"node"`
	Client      Client        `json:"client"`
	Destination Destination   `json:"destination"`
	Ranges      *SourceRanges `json:"sourceRanges,omitempty"`
	Policy      *Policy       `json:"policy,omitempty"`
	Endpoints   *Endpoints    `json:"endpoints,omitempty"`
	Balancing   *Balancing    `json:"choice,omitempty"`

	// Verdict is forwarded, rejected, dropped or notOurs.
	Verdict string `json:"fate"`
	// Reason is the rule that decided, see [model.Reason].
	Reason string `json:"reason"`

	// Notes say which of several things a name stands for.
	Notes []string `json:"notes,omitempty"`

	// Daemon is set if the daemon of this node has explained.
	Daemon *Daemon `json:"daemon,omitempty"`
	// Probe is set if connections were made.
	Probe *Probe `json:"probe,omitempty"`

	// Problems of the objects that concern the connection.
	Problems []string `json:"problems,omitempty"`

	Steps      []Step   `json:"steps"`
	Next       []string `json:"next,omitempty"` // advice, if the result is not the expected one
	Conclusion string   `json:"conclusion"`

	all bool // the text has everything
}

// Step is one step of the explanation: a sentence or more, and lines below it.
type Step struct {
	Text  string   `json:"text"`
	Lines []string `json:"lines,omitempty"`
}

// Node is the node that handles the connection.
type Node struct {
	Name string `json:"name"`
	// Known is false if there is no Node object. Then the node's addresses, its zone and its
	// pods' ranges are not known.
	Known bool   `json:"known"`
	Zone  string `json:"zone,omitempty"`
}

// Client is the source of the connection.
type Client struct {
	Name      string `json:"name,omitempty"` // the object, like "pod shop/web-1"; empty if unknown
	Address   string `json:"address"`
	Interface string `json:"interface,omitempty"` // by which the connection arrives
	// Kind is node, pod, notPod or unknown, as far as this node can tell.
	Kind string `json:"kind"`
	// Detection is how pods are told from other clients: clusterCIDR, nodeCIDR, interface,
	// interfacePrefix; or the reason why they can't be: nodeCIDRUnset, none.
	Detection    string   `json:"detection"`
	PodRanges    []string `json:"podRanges,omitempty"`
	PodInterface string   `json:"podInterface,omitempty"`
	// EndpointOf are the EndpointSlices with this address, and PodNode is its Node according to
	// them.
	EndpointOf []string `json:"endpointOf,omitempty"`
	PodNode    string   `json:"podNode,omitempty"`
	// OtherNode is the Node with this address, unless it is this node.
	OtherNode string `json:"otherNode,omitempty"`
	// OtherwiseIfPod: the client may be a pod, and then the result would differ.
	OtherwiseIfPod bool `json:"otherwiseIfPod,omitempty"`
}

// canTellPods reports whether this node tells pods from other clients.
func (c Client) canTellPods() bool { return c.Detection != "none" && c.Detection != "nodeCIDRUnset" }

// Destination is the destination of the connection.
type Destination struct {
	Name     string `json:"name,omitempty"` // the object, if one was given
	Address  string `json:"address"`
	Port     uint16 `json:"port"`
	Protocol string `json:"protocol"`
	// Kind is clusterIP, loadBalancerIP, externalIP, nodePort, localhostNodePort, or none.
	Kind    string       `json:"kind"`
	Service *ServicePort `json:"service,omitempty"`
	// Rivals claim the same address and port without success.
	Rivals []Rival `json:"rivals,omitempty"`
	// Findings are possible explanations if the destination belongs to no Service.
	Findings []Finding `json:"findings,omitempty"`
}

// ServicePort is one port of a Service.
type ServicePort struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Port      string `json:"port"` // its name, may be empty
	Family    string `json:"family"`
	Type      string `json:"type,omitempty"`
}

// Rival is a service port that claims another one's address and port.
type Rival struct {
	Service string `json:"service"` // namespace/name
	Port    string `json:"port"`
	Younger bool   `json:"younger"` // otherwise it is as old, and its name sorts later
}

// FindingKind is the kind of a Finding.
type FindingKind string

// The kinds of findings.
const (
	OtherPort         FindingKind = "otherPort"         // a Service has the address, with other ports
	OtherProxy        FindingKind = "otherProxy"        // … and is labelled for another proxy
	ExternalName      FindingKind = "externalName"      // … and is of type ExternalName
	NoClusterIP       FindingKind = "noClusterIP"       // … and has no cluster IP
	OtherFamily       FindingKind = "otherFamily"       // … and has no cluster IP of this family
	IPModeProxy       FindingKind = "ipModeProxy"       // … and its load balancer has ipMode Proxy
	Refused           FindingKind = "refused"           // … and the configuration does not allow it
	Unusable          FindingKind = "unusable"          // … and is invalid
	NodePortElsewhere FindingKind = "nodePortElsewhere" // a node port, but not on this address of the node
	NodePortNotHere   FindingKind = "nodePortNotHere"   // a node port, but the node is not known to have this address
	NodePortLocalhost FindingKind = "nodePortLocalhost" // a node port, but not on loopback
	NodePortNotNode   FindingKind = "nodePortNotNode"   // a node port on loopback, only for processes of this node
	NodePortProtocol  FindingKind = "nodePortProtocol"  // a node port of another protocol
	PodItself         FindingKind = "podItself"         // the address of an endpoint
	ThisNode          FindingKind = "thisNode"          // an address of this node
	OtherNodeAddr     FindingKind = "otherNode"         // an address of another node
	InServiceCIDR     FindingKind = "inServiceCIDR"     // in a range of cluster IPs
)

// Finding is a possible explanation if the destination belongs to no Service. The fields that
// are set depend on the kind.
type Finding struct {
	Kind    FindingKind `json:"kind"`
	Service string      `json:"service,omitempty"` // namespace/name
	Role    string      `json:"role,omitempty"`    // of the address in the Service: clusterIP, ...
	Ports   []Port      `json:"ports,omitempty"`   // of the Service or slice
	// Addresses are where node ports answer.
	Addresses []string `json:"addresses,omitempty"`
	Name      string   `json:"name,omitempty"` // of the proxy, the Node, the EndpointSlice or the range
	NodeName  string   `json:"nodeName,omitempty"`
	Pod       string   `json:"pod,omitempty"`
	State     string   `json:"state,omitempty"` // of the endpoint, as Endpoint.State
}

// SourceRanges are the clients that may connect to a load balancer's address.
type SourceRanges struct {
	Ranges  []string `json:"ranges"`
	Allowed bool     `json:"allowed"`
	// Applies: they restrict this kind of address, and this family.
	Applies bool `json:"applies"`
	// Self: they include this node, and so the address itself may be the source.
	Self bool `json:"self,omitempty"`
}

// Policy is the traffic policy that applies.
type Policy struct {
	Field string `json:"field"` // internalTrafficPolicy or externalTrafficPolicy
	Value string `json:"value"` // Cluster or Local
	// ShortCircuit is pod or node if Local does not apply to such a client.
	ShortCircuit string `json:"shortCircuit,omitempty"`
}

// Endpoints are the endpoints of the service port.
type Endpoints struct {
	// List is cluster or local: where the policy allows endpoints.
	List   string     `json:"list"`
	Used   []Endpoint `json:"used"`
	Unused []Endpoint `json:"unused,omitempty"`
	// Slices are slices of the Service without endpoints for this port.
	Slices []Slice `json:"otherSlices,omitempty"`
	// Hints are the hints that selected endpoints: node, zone, or none; HintsIgnored is the
	// reason why all hints were ignored: someWithout or noneForUs.
	Hints        string `json:"hints"`
	HintsIgnored string `json:"hintsIgnored,omitempty"`
	// Lacking is the reason why none is used: noSlices, noPods, noPort, otherProtocol,
	// otherFamily, leftToOthers, invalid, notServing or notLocal.
	Lacking string `json:"lacking,omitempty"`
	// TargetPort is the Service's field, and TargetPortField its name, if they are known.
	TargetPort      string `json:"targetPort,omitempty"`
	TargetPortField string `json:"targetPortField,omitempty"`
	// Declared are ports of the pods' containers, if the target port is none of them.
	Declared []Port `json:"declaredPorts,omitempty"`
	// Selector is the Service's, if it is known and no endpoint is used. Matching and Pods are the
	// number of pods of the namespace that it matches, and of all, if they are known; Nearly has the
	// differences of the nearest ones.
	Selector   string   `json:"selector,omitempty"`
	NoSelector bool     `json:"noSelector,omitempty"`
	Matching   *int     `json:"matchingPods,omitempty"`
	Pods       int      `json:"podsInNamespace,omitempty"`
	Nearly     []string `json:"nearlyMatching,omitempty"`
	// Unlabelled are EndpointSlices of the namespace that name no Service.
	Unlabelled []string `json:"unlabelledSlices,omitempty"`
}

// Endpoint is one endpoint.
type Endpoint struct {
	Address string   `json:"address"`
	Pod     string   `json:"pod,omitempty"` // namespace/name
	Local   bool     `json:"local"`
	Node    string   `json:"node,omitempty"`
	Slices  []string `json:"slices"`
	// State is ready, terminating (but still serving), terminated (terminating, and no
	// longer serving), notReady, or gone (in no EndpointSlice any more).
	State     string   `json:"state"`
	PodReason string   `json:"podReason,omitempty"` // why the pod is not ready, if it is known
	HintNodes []string `json:"hintNodes,omitempty"`
	HintZones []string `json:"hintZones,omitempty"`
	// Excluded is the reason why it is not used: notServing, notLocal, readyOnesExist,
	// hintsOtherNodes or hintsOtherZones.
	Excluded string `json:"excluded,omitempty"`
	// SourceNAT is the reason why a used endpoint sees the node's address as the source
	// (Masquerade), or the client's, see [model.SNATReason].
	SourceNAT  string `json:"sourceNAT,omitempty"`
	Masquerade bool   `json:"masquerade,omitempty"`
}

// Slice is an EndpointSlice without endpoints for the port.
type Slice struct {
	Name      string `json:"name"`
	Endpoints int    `json:"endpoints"`
	Why       string `json:"why"` // otherFamily, noPort, otherProtocol, overBudget, headlessLabel, notIP or invalid
	Ports     []Port `json:"ports,omitempty"`
}

// Port is a port of a Service or a slice.
type Port struct {
	Name     string `json:"name,omitempty"`
	Port     int    `json:"port,omitempty"` // 0 if a slice has none
	Protocol string `json:"protocol"`
}

// Balancing is how one of several endpoints is chosen.
type Balancing struct {
	Algorithm       string `json:"algorithm"`
	AffinitySeconds int    `json:"affinitySeconds,omitempty"`
	// Endpoint is the one that the lookup table has for the client. IPVS has a table of its own, iptables none.
	Endpoint string `json:"endpoint,omitempty"`
}
