package explain

// Explanation says what becomes of a connection, and why. Its fields are the facts; Steps,
// Next and Conclusion are the same in sentences. The names in JSON do not change.
type Explanation struct {
	Node        Node          `json:"node"`
	Client      Client        `json:"client"`
	Destination Destination   `json:"destination"`
	Ranges      *SourceRanges `json:"sourceRanges,omitempty"`
	Policy      *Policy       `json:"policy,omitempty"`
	Endpoints   *Endpoints    `json:"endpoints,omitempty"`
	Choice      *Choice       `json:"choice,omitempty"`

	// Verdict is forwarded, rejected, dropped or notOurs.
	Verdict string `json:"fate"`
	// Reason is the rule that decided, see [model.Reason].
	Reason string `json:"reason"`

	// Problems are those of the objects that were looked at.
	Problems []string `json:"problems,omitempty"`

	Steps      []Step   `json:"steps"`
	Next       []string `json:"next,omitempty"` // what to look at if this is not what should be
	Conclusion string   `json:"conclusion"`
}

// Step is one step of the explanation: a sentence or more, and lines below it.
type Step struct {
	Text  string   `json:"text"`
	Lines []string `json:"lines,omitempty"`
}

// Node is the node on which the connection is looked at.
type Node struct {
	Name string `json:"name"`
	// Known: there is a Node object. Without one, the node's addresses, its zone and its
	// pods' ranges are not known.
	Known bool   `json:"known"`
	Zone  string `json:"zone,omitempty"`
}

// Client is who connects.
type Client struct {
	Address   string `json:"address"`
	Interface string `json:"interface,omitempty"` // by which the connection comes in
	// Kind is node, pod, notPod or unknown, as far as this node can tell.
	Kind string `json:"kind"`
	// Detection is how pods are told from others: clusterCIDR, nodeCIDR, interface,
	// interfacePrefix; or why they can't be: nodeCIDRUnset, none.
	Detection    string   `json:"detection"`
	PodRanges    []string `json:"podRanges,omitempty"`
	PodInterface string   `json:"podInterface,omitempty"`
	// EndpointOf are the EndpointSlices that have this address, and PodNode the Node that
	// they say it is on.
	EndpointOf []string `json:"endpointOf,omitempty"`
	PodNode    string   `json:"podNode,omitempty"`
	// OtherNode is the Node whose address this is, if it is not this node.
	OtherNode string `json:"otherNode,omitempty"`
	// OtherwiseIfPod: it is not known whether it is a pod, and a pod would fare differently.
	OtherwiseIfPod bool `json:"otherwiseIfPod,omitempty"`
}

// canTellPods reports whether pods are told from others at all on this node.
func (c Client) canTellPods() bool { return c.Detection != "none" && c.Detection != "nodeCIDRUnset" }

// Destination is what the client connects to.
type Destination struct {
	Address  string `json:"address"`
	Port     uint16 `json:"port"`
	Protocol string `json:"protocol"`
	// Kind is clusterIP, loadBalancerIP, externalIP, nodePort, localhostNodePort, or none.
	Kind    string       `json:"kind"`
	Service *ServicePort `json:"service,omitempty"`
	// Rivals ask for the same address and port in vain.
	Rivals []Rival `json:"rivals,omitempty"`
	// Findings are what comes near, where no Service is meant.
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

// Rival is a service port that asks for what another one has.
type Rival struct {
	Service string `json:"service"` // namespace/name
	Port    string `json:"port"`
	Younger bool   `json:"younger"` // if not, it is as old and comes later by name
}

// FindingKind is what was found out about a destination that is no Service's.
type FindingKind string

// The kinds of findings.
const (
	OtherPort         FindingKind = "otherPort"         // a Service has the address, on other ports
	OtherProxy        FindingKind = "otherProxy"        // … and leaves it to another proxy
	HeadlessLabel     FindingKind = "headlessLabel"     // … and is labelled as headless
	ExternalName      FindingKind = "externalName"      // … and is of type ExternalName
	NoClusterIP       FindingKind = "noClusterIP"       // … and has no cluster IP at all
	OtherFamily       FindingKind = "otherFamily"       // … and has no cluster IP of this family
	IPModeProxy       FindingKind = "ipModeProxy"       // … and its load balancer wants to be asked itself
	Unusable          FindingKind = "unusable"          // … and nothing of it can be served
	NodePortElsewhere FindingKind = "nodePortElsewhere" // a node port, but not on this address of the node
	NodePortNotHere   FindingKind = "nodePortNotHere"   // a node port, but this is no known address of the node
	NodePortLocalhost FindingKind = "nodePortLocalhost" // a node port, but not on loopback
	NodePortNotNode   FindingKind = "nodePortNotNode"   // … only for this node's own processes
	NodePortProtocol  FindingKind = "nodePortProtocol"  // a node port of another protocol
	PodItself         FindingKind = "podItself"         // the address of an endpoint
	ThisNode          FindingKind = "thisNode"          // an address of this node
	OtherNodeAddr     FindingKind = "otherNode"         // an address of another one
	InServiceCIDR     FindingKind = "inServiceCIDR"     // in a range for cluster IPs
)

// Finding is something about a destination that is no Service's. Which fields are set
// depends on the kind.
type Finding struct {
	Kind    FindingKind `json:"kind"`
	Service string      `json:"service,omitempty"` // namespace/name
	Role    string      `json:"role,omitempty"`    // what the address is to the Service: clusterIP, ...
	Ports   []Port      `json:"ports,omitempty"`   // that are there
	// Addresses are where node ports answer.
	Addresses []string `json:"addresses,omitempty"`
	Name      string   `json:"name,omitempty"` // of the proxy, the Node, the EndpointSlice or the range
	NodeName  string   `json:"nodeName,omitempty"`
	State     string   `json:"state,omitempty"` // of the endpoint, as Endpoint.State
}

// SourceRanges says who may connect to a load balancer's address.
type SourceRanges struct {
	Ranges  []string `json:"ranges"`
	Allowed bool     `json:"allowed"`
	// Applies: they concern this kind of address, and this family.
	Applies bool `json:"applies"`
	// Self: this node is among them, and so the address itself as the source.
	Self bool `json:"self,omitempty"`
}

// Policy is the traffic policy that applies.
type Policy struct {
	Field string `json:"field"` // internalTrafficPolicy or externalTrafficPolicy
	Value string `json:"value"` // Cluster or Local
	// ShortCircuit is pod or node if the client is one of those that Local does not bind.
	ShortCircuit string `json:"shortCircuit,omitempty"`
}

// Endpoints are who could answer.
type Endpoints struct {
	// List is cluster or local: where endpoints may be.
	List   string     `json:"list"`
	Used   []Endpoint `json:"used"`
	Unused []Endpoint `json:"unused,omitempty"`
	// Slices are those of the Service that offer nothing for this port.
	Slices []Slice `json:"otherSlices,omitempty"`
	// Hints are those that decided: node, zone, or none; HintsIgnored says why none did
	// though there are some: someWithout or noneForUs.
	Hints        string `json:"hints"`
	HintsIgnored string `json:"hintsIgnored,omitempty"`
	// Lacking says why none is used: noSlices, noPods, noPort, otherProtocol, otherFamily,
	// leftToOthers, invalid, notServing or notLocal.
	Lacking string `json:"lacking,omitempty"`
}

// Endpoint is an address that could answer.
type Endpoint struct {
	Address string   `json:"address"`
	Local   bool     `json:"local"`
	Node    string   `json:"node,omitempty"`
	Slices  []string `json:"slices"`
	// State is ready, terminating (but still serving), terminated (terminating, and no
	// longer serving) or notReady.
	State     string   `json:"state"`
	HintNodes []string `json:"hintNodes,omitempty"`
	HintZones []string `json:"hintZones,omitempty"`
	// Excluded says why it is not used: notServing, notLocal, readyOnesExist,
	// hintsOtherNodes or hintsOtherZones.
	Excluded string `json:"excluded,omitempty"`
	// SourceNAT says, if it is used, why it sees the node's address as its client's, or
	// does not, see [model.SNATReason]; Masquerade which of the two it is.
	SourceNAT  string `json:"sourceNAT,omitempty"`
	Masquerade bool   `json:"masquerade,omitempty"`
}

// Slice is an EndpointSlice that offers nothing.
type Slice struct {
	Name      string `json:"name"`
	Endpoints int    `json:"endpoints"`
	Why       string `json:"why"` // otherFamily, noPort, otherProtocol, otherProxy, headlessLabel, notIP or invalid
	Ports     []Port `json:"ports,omitempty"`
}

// Port is a port of a Service or a slice.
type Port struct {
	Name     string `json:"name,omitempty"`
	Port     int    `json:"port,omitempty"` // 0 if a slice has none
	Protocol string `json:"protocol"`
}

// Choice is how one of several endpoints is chosen.
type Choice struct {
	Algorithm       string `json:"algorithm"`
	AffinitySeconds int    `json:"affinitySeconds,omitempty"`
}
