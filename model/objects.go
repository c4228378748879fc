package model

import (
	"cmp"
	"strings"
	"time"
)

// Labels that decide whether this proxy serves an object.
const (
	// LabelServiceProxyName names the proxy that serves a Service, if it is not the default one. Its copy at the slices is
	// not read: slices change with a delay.
	LabelServiceProxyName = "service.kubernetes.io/service-proxy-name"
	// LabelHeadless marks the EndpointSlices of headless Services. At a Service it does not count: its cluster IP decides.
	// Both as in kube-proxy since 1.36 (kubernetes/kubernetes#134623).
	LabelHeadless = "service.kubernetes.io/headless"
	// LabelServiceName ties an EndpointSlice to its Service.
	LabelServiceName = "kubernetes.io/service-name"
	// LabelZone is the zone of a Node.
	LabelZone = "topology.kubernetes.io/zone"
)

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

func compareNames(a, b NamespacedName) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// Service holds the fields of a v1 Service that the proxy needs, unchecked.
// [Builder.SetService] checks them and keeps no reference to the value.
type Service struct {
	NamespacedName
	Version               uint64    // metadata.resourceVersion, see Builder.Version; 0: unknown
	UID                   string    // of the object; events name it
	Created               time.Time // metadata.creationTimestamp, in seconds; the oldest of two claimants wins
	Labels                map[string]string
	Annotations           map[string]string // at least those of Annotations
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

// EndpointSlice holds the fields of a discovery/v1 EndpointSlice that the proxy needs, unchecked.
type EndpointSlice struct {
	NamespacedName
	Version     uint64 // as a Service's
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
	HintNodes   []string // hints.forNodes: the Nodes with the clients that should use it
	HintZones   []string // hints.forZones: the zones with the clients that should
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
