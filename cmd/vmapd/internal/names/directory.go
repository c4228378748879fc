package names

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/kube"
)

// Directory has the objects of files or of a cluster.
type Directory struct {
	Services     []ServiceObject
	Slices       []SliceObject
	Nodes        []model.Node
	ServiceCIDRs []model.ServiceCIDR
	Pods         []*corev1.Pod
	// NoPods is the reason why pods are not read; nil: they are.
	NoPods error
}

// ServiceObject is a Service with the fields that lead to its pods.
type ServiceObject struct {
	model.Service
	Spec corev1.ServiceSpec
}

// SliceObject is an EndpointSlice with the places of its endpoints, in their order.
type SliceObject struct {
	model.EndpointSlice
	Places []Place
}

// Place is what no proxy reads of an endpoint.
type Place struct {
	Pod  model.NamespacedName // without a name: not known
	Zone string
}

// Endpoint is an endpoint of a slice.
type Endpoint struct {
	model.SliceEndpoint
	Place
	Slice *SliceObject
}

// NewSlice converts an EndpointSlice.
func NewSlice(s *discoveryv1.EndpointSlice) SliceObject {
	out := SliceObject{EndpointSlice: kube.EndpointSlice(s)}
	for _, e := range s.Endpoints {
		p := Place{Zone: ptr.Deref(e.Zone, "")}
		if ref := e.TargetRef; ref != nil && (ref.Kind == "Pod" || ref.Kind == "") {
			p.Pod = model.NamespacedName{Namespace: s.Namespace, Name: ref.Name}
		}
		out.Places = append(out.Places, p)
	}
	return out
}

// Concerns reports whether a Service has the name or the address of the destination, or a node port of its number.
func (q *Query) Concerns(s *ServiceObject) bool {
	to := q.To
	if to.Kind == Service {
		return s.Name == to.Name
	}
	isNodePort := func(p model.Port) bool { return p.NodePort != 0 && p.NodePort == int32(to.number()) }
	return s.HasAddress(to.Addr) || slices.ContainsFunc(s.Ports, isNodePort)
}

// HasAddress reports whether a Service has an address, of whatever kind.
func (s *ServiceObject) HasAddress(a netip.Addr) bool {
	at := slices.Concat(s.ClusterIPs, s.ExternalIPs)
	for _, in := range s.Ingress {
		at = append(at, in.IP)
	}
	return Has(at, a)
}

// Builder returns a Builder with the objects.
func (d *Directory) Builder(c model.Config) *model.Builder {
	b := model.NewBuilder(c)
	for _, n := range d.Nodes {
		b.SetNode(n)
	}
	for _, c := range d.ServiceCIDRs {
		b.SetServiceCIDR(c)
	}
	for _, s := range d.Services {
		b.SetService(s.Service)
	}
	for _, s := range d.Slices {
		b.SetEndpointSlice(s.EndpointSlice)
	}
	return b
}

// Service returns a Service, or nil.
func (d *Directory) Service(name model.NamespacedName) *ServiceObject {
	return first(d.Services, func(s ServiceObject) bool { return s.NamespacedName == name })
}

// Node returns a Node, or an error with the names of some.
func (d *Directory) Node(name string) (*model.Node, error) {
	if n := first(d.Nodes, func(n model.Node) bool { return n.Name == name }); n != nil {
		return n, nil
	}
	var all []string
	for _, n := range d.Nodes {
		all = append(all, n.Name)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("node %q not found", name)
	}
	return nil, fmt.Errorf("node %q not found; the nodes: %s", name, model.OneLine(report.List(all, 4)))
}

// CheckNode returns an error if none of the Nodes has the name of --node-name. Without Nodes, any will do.
func (d *Directory) CheckNode(name string) error {
	if _, err := d.Node(name); err != nil && len(d.Nodes) > 0 {
		return fmt.Errorf("--node-name: %w", err)
	}
	return nil
}

// NodeAt returns the Node that has an address, or nil.
func (d *Directory) NodeAt(addr netip.Addr) *model.Node {
	return first(d.Nodes, func(n model.Node) bool { return Has(n.Addresses, addr) })
}

func first[T any](list []T, found func(T) bool) *T {
	if i := slices.IndexFunc(list, found); i >= 0 {
		return &list[i]
	}
	return nil
}

// List returns the endpoints of a slice, but for those without an address.
func (s *SliceObject) List() (list []Endpoint) {
	for i, e := range s.Endpoints {
		out := Endpoint{SliceEndpoint: e, Slice: s}
		if i < len(s.Places) {
			out.Place = s.Places[i]
		}
		if len(e.Addresses) > 0 {
			list = append(list, out)
		}
	}
	return list
}

func (d *Directory) endpoints() (list []Endpoint) {
	for i := range d.Slices {
		list = append(list, d.Slices[i].List()...)
	}
	return list
}

// IsTerminating reports whether the endpoint's pod ends.
func (e Endpoint) IsTerminating() bool { return ptr.Deref(e.Terminating, false) }

// ByAddress returns the endpoints by their first address, as others are not used. Those that terminate are among them
// only if no other has the address: they are of an older pod.
func (d *Directory) ByAddress() map[netip.Addr][]Endpoint {
	all := map[netip.Addr][]Endpoint{}
	for _, e := range d.endpoints() {
		if a, err := model.ParseAddr(e.Addresses[0]); err == nil {
			all[a] = append(all[a], e)
		}
	}
	for a, list := range all {
		if slices.ContainsFunc(list, func(e Endpoint) bool { return !e.IsTerminating() }) {
			all[a] = slices.DeleteFunc(list, Endpoint.IsTerminating)
		}
	}
	return all
}

// PodAt returns the name of the pod that has an address: by its object or, without that, by an endpoint. It is "" if
// none is known, or if the address is a node's, which several pods may share.
func (d *Directory) PodAt(addr netip.Addr) string {
	if d.NodeAt(addr) != nil {
		return ""
	}
	for _, p := range d.Pods {
		if slices.Contains(addrsOf(p), addr) {
			return p.Namespace + "/" + p.Name
		}
	}
	for _, e := range d.ByAddress()[addr] {
		if e.Pod.Name != "" {
			return e.Pod.String()
		}
	}
	return ""
}

// addrsOf returns the addresses of a pod; one that has ended has none.
func addrsOf(p *corev1.Pod) []netip.Addr {
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return nil
	}
	ips := []string{p.Status.PodIP}
	for _, ip := range p.Status.PodIPs {
		ips = append(ips, ip.IP)
	}
	return Addrs(ips)
}

// Has reports whether one of several texts is an address.
func Has(texts []string, addr netip.Addr) bool { return slices.Contains(Addrs(texts), addr) }

// Addrs returns the addresses among texts.
func Addrs(texts []string) (out []netip.Addr) {
	for _, text := range texts {
		if a, err := model.ParseAddr(text); err == nil && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}
