package modeltest

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vmapd/vmapd/model"
)

// NodeName is the name of this node in tests.
const NodeName = "node-1"

// The node's addresses.
const (
	NodeIP4 = "192.168.0.2"
	NodeIP6 = "fd00:192:168::2"
)

// Object is an object for a Builder.
type Object interface {
	Set(b *model.Builder)
	Delete(b *model.Builder)
	Ref() model.ObjectRef
}

// Config is the default configuration of tests: this node, with node ports on its primary
// addresses.
func Config() model.Config {
	return model.Config{
		NodeName: NodeName, NodePortAddresses: model.NodePortAddresses{Primary: true},
		TableSize: TableSize, ConnectionRetry: true,
	}
}

// Builder returns a Builder that has the objects.
func Builder(c model.Config, objects ...Object) *model.Builder {
	b := model.NewBuilder(c)
	for _, o := range objects {
		o.Set(b)
	}
	return b
}

// DualStack returns a builder with each kind of frontend once, and a set of each kind that is not empty.
func DualStack() *model.Builder {
	config := Config()
	pods := &config.LocalPods.ClusterCIDRs
	*pods = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00:10::/64")}
	return Builder(config,
		OurNode(),
		NewServiceCIDR("kubernetes", "172.30.0.0/16", "255.255.0.0/16", "fd00:172:30::/112"),
		NewService("ns1/web").On("172.30.0.41", "fd00:172:30::29").
			LoadBalancer("192.168.98.11", "fd00:192:168:98::b").External("192.168.99.11", "fd00:192:168:99::b").
			TCP("http", 80).NodePort(30001).UDP("dns", 53),
		NewService("ns1/empty").On("172.30.0.42").TCP("", 80),
		NewSlice("ns1/web-4", "web").TCP("http", 8080).UDP("dns", 5353).Local("10.0.0.2").Ready("10.0.0.3"),
		NewSlice("ns1/web-6", "web").IPv6().TCP("http", 8080).UDP("dns", 5353).Ready("fd00:10::2"))
}

// Snapshot returns the snapshot of the objects.
func Snapshot(c model.Config, objects ...Object) *model.Snapshot {
	return Builder(c, objects...).Snapshot()
}

// Name parses "namespace/name", or "name" without a namespace.
func Name(s string) model.NamespacedName {
	namespace, name, ok := strings.Cut(s, "/")
	if !ok {
		return model.NamespacedName{Name: s}
	}
	return model.NamespacedName{Namespace: namespace, Name: name}
}

// PortName is the name of a service port of the Service "namespace/name".
func PortName(service, port string, p model.Protocol) model.ServicePortName {
	return model.ServicePortName{NamespacedName: Name(service), Port: port, Protocol: p}
}

// Moment is the n-th second of the tests' time.
func Moment(n int) time.Time { return time.Unix(1_700_000_000+int64(n), 0).UTC() }

// Service is a model.Service under construction. Each method returns a changed copy,
// so one can be the base of several.
type Service struct{ model.Service }

// NewService returns a Service of type ClusterIP without addresses or ports.
func NewService(name string) Service {
	return Service{model.Service{NamespacedName: Name(name), Type: "ClusterIP", Created: Moment(0)}}
}

// Set implements Object.
func (s Service) Set(b *model.Builder) { b.SetService(s.Service) }

// Delete implements Object.
func (s Service) Delete(b *model.Builder) { b.DeleteService(s.NamespacedName) }

// Ref implements Object.
func (s Service) Ref() model.ObjectRef {
	return model.ObjectRef{Kind: "Service", NamespacedName: s.NamespacedName}
}

// Typed sets spec.type.
func (s Service) Typed(t string) Service { s.Type = t; return s }

// CreatedAt sets the time of creation, see Moment.
func (s Service) CreatedAt(n int) Service { s.Created = Moment(n); return s }

// Labeled adds a label.
func (s Service) Labeled(key, value string) Service {
	s.Labels = with(s.Labels, key, value)
	return s
}

// Annotated adds an annotation.
func (s Service) Annotated(key, value string) Service {
	s.Annotations = with(s.Annotations, key, value)
	return s
}

// On sets the cluster IPs.
func (s Service) On(ips ...string) Service { s.ClusterIPs = ips; return s }

// External sets the external IPs.
func (s Service) External(ips ...string) Service { s.ExternalIPs = ips; return s }

// LoadBalancer adds addresses of a load balancer, with no ipMode.
func (s Service) LoadBalancer(ips ...string) Service {
	for _, ip := range ips {
		s = s.From(model.Ingress{IP: ip})
	}
	return s
}

// From adds an address of a load balancer.
func (s Service) From(in model.Ingress) Service {
	s.Ingress = append(slices.Clip(s.Ingress), in)
	return s
}

// Policies sets both traffic policies, Cluster or Local.
func (s Service) Policies(internal, external string) Service {
	s.InternalTrafficPolicy, s.ExternalTrafficPolicy = internal, external
	return s
}

// Sticky sets session affinity with a timeout.
func (s Service) Sticky(seconds int32) Service {
	s.SessionAffinity, s.AffinityTimeout = "ClientIP", &seconds
	return s
}

// Ranges sets loadBalancerSourceRanges.
func (s Service) Ranges(cidrs ...string) Service { s.SourceRanges = cidrs; return s }

// Algorithm sets the annotation.
func (s Service) Algorithm(name string) Service { return s.Annotated(model.AnnotationAlgorithm, name) }

// ConnectionGrace sets the annotation.
func (s Service) ConnectionGrace(time string) Service {
	return s.Annotated(model.AnnotationConnectionGrace, time)
}

// TCP adds a TCP port.
func (s Service) TCP(name string, port int32) Service {
	return s.Port(model.Port{Name: name, Protocol: "TCP", Port: port})
}

// UDP adds a UDP port.
func (s Service) UDP(name string, port int32) Service {
	return s.Port(model.Port{Name: name, Protocol: "UDP", Port: port})
}

// Port adds a port.
func (s Service) Port(p model.Port) Service {
	s.Ports = append(slices.Clip(s.Ports), p)
	return s
}

// NodePort gives the last port a node port.
func (s Service) NodePort(n int32) Service {
	s.Ports = slices.Clone(s.Ports)
	s.Ports[len(s.Ports)-1].NodePort = n
	return s
}

// Slice is a model.EndpointSlice under construction, see Service.
type Slice struct{ model.EndpointSlice }

// NewSlice returns a slice of IPv4 endpoints for a Service of the same namespace.
func NewSlice(name, service string) Slice {
	return Slice{model.EndpointSlice{
		NamespacedName: Name(name),
		Labels:         map[string]string{model.LabelServiceName: service},
		AddressType:    "IPv4",
	}}
}

// Set implements Object.
func (s Slice) Set(b *model.Builder) { b.SetEndpointSlice(s.EndpointSlice) }

// Delete implements Object.
func (s Slice) Delete(b *model.Builder) { b.DeleteEndpointSlice(s.NamespacedName) }

// Ref implements Object.
func (s Slice) Ref() model.ObjectRef {
	return model.ObjectRef{Kind: "EndpointSlice", NamespacedName: s.NamespacedName}
}

// IPv6 makes it a slice of IPv6 endpoints.
func (s Slice) IPv6() Slice { return s.Typed("IPv6") }

// Typed sets addressType.
func (s Slice) Typed(addressType string) Slice { s.AddressType = addressType; return s }

// Labeled adds a label.
func (s Slice) Labeled(key, value string) Slice {
	s.Labels = with(s.Labels, key, value)
	return s
}

// TCP adds a TCP port.
func (s Slice) TCP(name string, port int32) Slice { return s.Port(name, "TCP", port) }

// UDP adds a UDP port.
func (s Slice) UDP(name string, port int32) Slice { return s.Port(name, "UDP", port) }

// Port adds a port.
func (s Slice) Port(name, protocol string, port int32) Slice {
	return s.RawPort(model.SlicePort{Name: &name, Protocol: &protocol, Port: &port})
}

// RawPort adds a port with fields that may be nil.
func (s Slice) RawPort(p model.SlicePort) Slice {
	s.Ports = append(slices.Clip(s.Ports), p)
	return s
}

// Ready adds endpoints on another node, without conditions, so they are ready.
func (s Slice) Ready(addrs ...string) Slice {
	for _, a := range addrs {
		s = s.Endpoint(a, OnNode("node-2"))
	}
	return s
}

// Local adds endpoints on this node, without conditions.
func (s Slice) Local(addrs ...string) Slice {
	for _, a := range addrs {
		s = s.Endpoint(a, OnNode(NodeName))
	}
	return s
}

// Endpoint adds an endpoint.
func (s Slice) Endpoint(addr string, options ...func(*model.SliceEndpoint)) Slice {
	e := model.SliceEndpoint{Addresses: []string{addr}}
	for _, o := range options {
		o(&e)
	}
	return s.RawEndpoint(e)
}

// RawEndpoint adds an endpoint with fields that may be nil.
func (s Slice) RawEndpoint(e model.SliceEndpoint) Slice {
	s.Endpoints = append(slices.Clip(s.Endpoints), e)
	return s
}

// OnNode sets the node of an endpoint.
func OnNode(name string) func(*model.SliceEndpoint) {
	return func(e *model.SliceEndpoint) { e.NodeName = name }
}

// Conditions gives an endpoint all three conditions.
func Conditions(ready, serving, terminating bool) func(*model.SliceEndpoint) {
	return func(e *model.SliceEndpoint) {
		e.Ready, e.Serving, e.Terminating = &ready, &serving, &terminating
	}
}

// ForNodes sets an endpoint's hints for Nodes.
func ForNodes(names ...string) func(*model.SliceEndpoint) {
	return func(e *model.SliceEndpoint) { e.HintNodes = names }
}

// ForZones sets an endpoint's hints for zones.
func ForZones(zones ...string) func(*model.SliceEndpoint) {
	return func(e *model.SliceEndpoint) { e.HintZones = zones }
}

// Node is a model.Node.
type Node struct{ model.Node }

// NewNode returns a Node with addresses.
func NewNode(name string, addrs ...string) Node {
	return Node{model.Node{Name: name, Addresses: addrs}}
}

// OurNode returns this node, with its addresses of both families.
func OurNode() Node { return NewNode(NodeName, NodeIP4, NodeIP6) }

// In sets the zone.
func (n Node) In(zone string) Node { n.Zone = zone; return n }

// Pods sets spec.podCIDRs.
func (n Node) Pods(cidrs ...string) Node { n.PodCIDRs = cidrs; return n }

// Set implements Object.
func (n Node) Set(b *model.Builder) { b.SetNode(n.Node) }

// Delete implements Object.
func (n Node) Delete(b *model.Builder) { b.DeleteNode(n.Name) }

// Ref implements Object.
func (n Node) Ref() model.ObjectRef {
	return model.ObjectRef{Kind: "Node", NamespacedName: model.NamespacedName{Name: n.Name}}
}

// ServiceCIDR is a model.ServiceCIDR.
type ServiceCIDR struct{ model.ServiceCIDR }

// NewServiceCIDR returns a ServiceCIDR with ranges.
func NewServiceCIDR(name string, cidrs ...string) ServiceCIDR {
	return ServiceCIDR{model.ServiceCIDR{Name: name, CIDRs: cidrs}}
}

// Set implements Object.
func (c ServiceCIDR) Set(b *model.Builder) { b.SetServiceCIDR(c.ServiceCIDR) }

// Delete implements Object.
func (c ServiceCIDR) Delete(b *model.Builder) { b.DeleteServiceCIDR(c.Name) }

// Ref implements Object.
func (c ServiceCIDR) Ref() model.ObjectRef {
	return model.ObjectRef{Kind: "ServiceCIDR", NamespacedName: model.NamespacedName{Name: c.Name}}
}

// with returns a copy of labels or annotations that has one more.
func with(all map[string]string, key, value string) map[string]string {
	changed := map[string]string{}
	maps.Copy(changed, all)
	changed[key] = value
	return changed
}
