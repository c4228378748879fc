package model

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// Labels that decide whether this proxy serves an object.
const (
	// LabelServiceProxyName names the proxy that serves a Service, if it is not the
	// default one.
	LabelServiceProxyName = "service.kubernetes.io/service-proxy-name"
	// LabelHeadless marks Services and EndpointSlices that no proxy serves.
	LabelHeadless = "service.kubernetes.io/headless"
	// LabelServiceName ties an EndpointSlice to its Service.
	LabelServiceName = "kubernetes.io/service-name"
	// LabelZone is the zone of a Node.
	LabelZone = "topology.kubernetes.io/zone"
)

// AnnotationAlgorithm on a Service names the algorithm that chooses its endpoints: random,
// round-robin or source-hash. It overrides the configuration.
const AnnotationAlgorithm = "vmapd.io/lb-algorithm"

// AnnotationConnectionGrace on a Service is a duration, like "30s": the time after which its
// TCP and SCTP connections to an endpoint that no longer serves are ended. It overrides the
// configuration.
const AnnotationConnectionGrace = "vmapd.io/connection-grace"

// NamespacedName identifies an object within its kind.
type NamespacedName struct {
	Namespace, Name string
}

func (n NamespacedName) String() string {
	if n.Namespace == "" {
		return n.Name
	}
	return n.Namespace + "/" + n.Name
}

// Service holds the fields of a v1 Service that the proxy needs, unchecked.
// [Builder.SetService] checks them and keeps no reference to the value.
type Service struct {
	NamespacedName
	Created               time.Time // metadata.creationTimestamp, in seconds; the oldest of two claimants wins
	Labels                map[string]string
	Type                  string
	ClusterIPs            []string // spec.clusterIPs, or spec.clusterIP if that is empty
	ExternalIPs           []string
	Ingress               []Ingress // status.loadBalancer.ingress
	Ports                 []Port
	InternalTrafficPolicy string
	ExternalTrafficPolicy string
	SessionAffinity       string
	AffinityTimeout       *int32   // spec.sessionAffinityConfig.clientIP.timeoutSeconds
	SourceRanges          []string // spec.loadBalancerSourceRanges
	HealthCheckNodePort   int32    // 0 means none
	Algorithm             string   // the annotation AnnotationAlgorithm
	ConnectionGrace       string   // the annotation AnnotationConnectionGrace
}

// Ingress is one address of a load balancer.
type Ingress struct {
	IP     string // empty if the load balancer only has a host name
	IPMode string // "", "VIP" or "Proxy" (KEP-1860)
}

// Port is one entry of a Service's spec.ports.
type Port struct {
	Name     string
	Protocol string // empty means TCP
	Port     int32
	NodePort int32 // 0 means none
}

// EndpointSlice holds the fields of a discovery/v1 EndpointSlice that the proxy needs,
// unchecked.
type EndpointSlice struct {
	NamespacedName
	Labels      map[string]string
	AddressType string // IPv4 or IPv6; the proxy ignores others
	Ports       []SlicePort
	Endpoints   []SliceEndpoint
}

// SlicePort is one entry of a slice's ports.
type SlicePort struct {
	Name     *string
	Protocol *string // nil means TCP
	Port     *int32
}

// SliceEndpoint is one entry of a slice's endpoints. The conditions are as in the
// API: nil Ready and nil Serving mean true, nil Terminating means false.
type SliceEndpoint struct {
	Addresses   []string // only the first is used
	Ready       *bool
	Serving     *bool
	Terminating *bool
	NodeName    string
	HintNodes   []string // hints.forNodes: the Nodes whose clients should use it
	HintZones   []string // hints.forZones: the zones whose clients should
}

// Node holds the fields of a v1 Node that the proxy needs.
type Node struct {
	Name      string
	Addresses []string // status.addresses of type InternalIP, then ExternalIP
	Zone      string   // the label LabelZone
	PodCIDRs  []string // spec.podCIDRs
	Deleting  bool     // it has a deletion timestamp
	Taints    []string // the keys of spec.taints
}

// ServiceCIDR holds the ranges of a networking/v1 ServiceCIDR.
type ServiceCIDR struct {
	Name  string
	CIDRs []string
}

// NodePortAddresses selects the addresses of the node on which node ports answer.
// The zero value selects none.
type NodePortAddresses struct {
	Primary bool           // the node's primary address of each family
	All     bool           // every address of the node but loopback
	CIDRs   []netip.Prefix // those of the node's addresses that lie in one of these
	// Localhost selects the loopback addresses. The kernel does not forward from these, so a
	// program listens there (KEP-6032).
	Localhost [len(Families)]bool
}

// Config is the part of the configuration that concerns traffic.
type Config struct {
	// NodeName is this Node's name in the API; endpoints with it are local.
	NodeName string
	// NodePortAddresses defaults to Primary in the commands.
	NodePortAddresses NodePortAddresses
	// LocalPods tells connections from pods from others.
	LocalPods LocalPods
	// MasqueradeAll masquerades all traffic to cluster IPs.
	MasqueradeAll bool
	// Algorithm chooses endpoints of Services without AnnotationAlgorithm.
	Algorithm Algorithm
	// PrimaryAddress is this node's primary address of its family; the zero value is the
	// first one of the Node object.
	PrimaryAddress netip.Addr
	// ConnectionGrace is for Services without AnnotationConnectionGrace; 0 is never.
	ConnectionGrace time.Duration
	// DropInvalid drops packets from endpoints that are INVALID for connection tracking. They
	// would reach the client with the pod's address, and the client would reset the connection.
	DropInvalid bool
}

// LocalPods tells connections from pods from others (KEP-2450). The zero value can't: no
// connection is then treated as a pod's, and none as coming from outside.
type LocalPods struct {
	Mode LocalPodsMode
	// ClusterCIDRs are the pods' ranges in the whole cluster, for ByClusterCIDR.
	ClusterCIDRs []netip.Prefix
	// Interface is the bridge's name, or the prefix of the names of pods' interfaces. It must
	// have passed CheckInterface: no backend checks it again.
	Interface string
}

// MaxInterface is the longest name of an interface (IFNAMSIZ with its final zero).
const MaxInterface = 15

// CheckInterface says what is wrong with the name of an interface or, with prefix, with the
// beginning of one. The name gets into rules as it is, also into those of iptables, where "+"
// at the end stands for any ending.
func CheckInterface(name string, prefix bool) error {
	odd := func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`"'\*/:!`, r) }
	switch {
	case len(name) > MaxInterface:
		return fmt.Errorf("longer than the %d bytes that an interface's name can have", MaxInterface)
	case strings.ContainsFunc(name, odd), !prefix && strings.HasSuffix(name, "+"):
		return errors.New("not the name of an interface")
	}
	return nil
}

// LocalPodsMode is kube-proxy's detectLocalMode.
type LocalPodsMode uint8

// The modes.
const (
	// ByClusterCIDR: the source is in one of ClusterCIDRs.
	ByClusterCIDR LocalPodsMode = iota
	// ByNodeCIDR: the source is in one of this Node's spec.podCIDRs.
	ByNodeCIDR
	// ByBridge: the connection comes in by the interface of this name.
	ByBridge
	// ByInterfacePrefix: … by an interface whose name begins with this.
	ByInterfacePrefix
)

// ParseLocalPodsMode reads kube-proxy's names of the modes; "" is ClusterCIDR.
func ParseLocalPodsMode(s string) (LocalPodsMode, error) {
	switch s {
	case "", "ClusterCIDR":
		return ByClusterCIDR, nil
	case "NodeCIDR":
		return ByNodeCIDR, nil
	case "BridgeInterface":
		return ByBridge, nil
	case "InterfaceNamePrefix":
		return ByInterfacePrefix, nil
	}
	return 0, fmt.Errorf("%q is none of ClusterCIDR, NodeCIDR, BridgeInterface, InterfaceNamePrefix", s)
}
