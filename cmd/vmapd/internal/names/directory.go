package names

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/kube"
)

// Directory has objects by name.
type Directory struct {
	Services []ServiceObject
	Slices   []SliceObject
	Nodes    []model.Node

	Pods      []PodObject
	Workloads []WorkloadObject
	// NoPods is the error that kept pods from being read; nil: those that matter are in Pods.
	NoPods error
	// Complete are the namespaces of which all pods, or workloads, are known.
	Complete map[string]bool

	bySlice map[model.NamespacedName]int // indexes of Slices; nil before they are needed
}

// ServiceObject is a Service with the fields that lead to its pods.
type ServiceObject struct {
	model.Service
	Selector    map[string]string
	TargetPorts []string // of each of Ports: a number or a name; "" is the port's own number
}

// SliceObject is an EndpointSlice with the names of its endpoints' pods.
type SliceObject struct {
	model.EndpointSlice
	Pods  []string // of each of Endpoints; "": none
	Hosts []string // names of each in DNS, of a headless Service; "": none
}

// PodObject is a pod.
type PodObject struct {
	model.NamespacedName
	Node        string
	Addrs       []netip.Addr
	HostNetwork bool
	Ready       bool
	Reason      string // why it is not ready, in the API's words; "": not known
	Done        bool   // it has no address any more
	Deleting    bool
	Labels      map[string]string
	Ports       []ContainerPort
}

// ContainerPort is a port that a container declares.
type ContainerPort struct {
	Name     string
	Port     int
	Protocol string // tcp, udp or sctp
}

// WorkloadObject makes pods.
type WorkloadObject struct {
	Kind Kind
	model.NamespacedName
	Selector *metav1.LabelSelector
	Labels   map[string]string // of its pods
	Ports    []ContainerPort   // of its pods
}

// NewService converts a Service.
func NewService(s *corev1.Service) ServiceObject {
	out := ServiceObject{Service: kube.Service(s), Selector: s.Spec.Selector}
	for _, p := range s.Spec.Ports {
		target := p.TargetPort.String()
		if target == "0" {
			target = ""
		}
		out.TargetPorts = append(out.TargetPorts, target)
	}
	return out
}

// NewSlice converts an EndpointSlice.
func NewSlice(s *discoveryv1.EndpointSlice) SliceObject {
	out := SliceObject{EndpointSlice: kube.EndpointSlice(s)}
	for _, e := range s.Endpoints {
		var pod, host string
		if ref := e.TargetRef; ref != nil && (ref.Kind == "Pod" || ref.Kind == "") {
			pod = ref.Name
		}
		if e.Hostname != nil {
			host = *e.Hostname
		}
		out.Pods, out.Hosts = append(out.Pods, pod), append(out.Hosts, host)
	}
	return out
}

// NewPod converts a pod.
func NewPod(p *corev1.Pod) PodObject {
	out := PodObject{
		NamespacedName: model.NamespacedName{Namespace: p.Namespace, Name: p.Name},
		Node:           p.Spec.NodeName, HostNetwork: p.Spec.HostNetwork, Labels: p.Labels,
		Done:     p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed,
		Deleting: p.DeletionTimestamp != nil,
		Ports:    containerPorts(p.Spec),
	}
	for _, c := range p.Status.Conditions {
		out.Ready = out.Ready || c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	}
	if !out.Ready {
		out.Reason = reason(p)
	}
	texts := []string{p.Status.PodIP}
	for _, ip := range p.Status.PodIPs {
		texts = append(texts, ip.IP)
	}
	for _, text := range texts {
		if a, err := model.ParseAddr(text); err == nil && !slices.Contains(out.Addrs, a) {
			out.Addrs = append(out.Addrs, a)
		}
	}
	return out
}

// reason returns why a pod is not ready.
func reason(p *corev1.Pod) string {
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			return fmt.Sprintf("container %s: %s", c.Name, c.State.Waiting.Reason)
		case c.State.Terminated != nil && c.State.Terminated.ExitCode != 0:
			return fmt.Sprintf("container %s has ended with exit code %d", c.Name, c.State.Terminated.ExitCode)
		case c.State.Running != nil && !c.Ready && p.DeletionTimestamp == nil:
			return fmt.Sprintf("container %s runs, and its readiness probe fails", c.Name)
		}
	}
	if p.Status.Phase == corev1.PodPending {
		return "Pending"
	}
	return p.Status.Reason
}

// NewWorkload converts a workload of a kind.
func NewWorkload(kind Kind, w *kube.Workload) WorkloadObject {
	return WorkloadObject{
		Kind: kind, NamespacedName: model.NamespacedName{Namespace: w.Namespace, Name: w.Name},
		Selector: w.Spec.Selector, Labels: w.Spec.Template.Labels, Ports: containerPorts(w.Spec.Template.Spec),
	}
}

func containerPorts(spec corev1.PodSpec) []ContainerPort {
	var out []ContainerPort
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		for _, p := range c.Ports {
			protocol, err := model.ParseProtocol(string(p.Protocol))
			if err == nil {
				out = append(out, ContainerPort{Name: p.Name, Port: int(p.ContainerPort), Protocol: protocol.String()})
			}
		}
	}
	return out
}

// Add adds the objects of another directory.
func (d *Directory) Add(o Directory) {
	d.Services = append(d.Services, o.Services...)
	d.Slices = append(d.Slices, o.Slices...)
	d.Nodes = append(d.Nodes, o.Nodes...)
	for _, p := range o.Pods {
		if !slices.ContainsFunc(d.Pods, func(q PodObject) bool { return q.NamespacedName == p.NamespacedName }) {
			d.Pods = append(d.Pods, p)
		}
	}
	d.Workloads = append(d.Workloads, o.Workloads...)
	d.bySlice = nil
	if o.NoPods != nil {
		d.NoPods = o.NoPods
	}
	if d.Complete == nil {
		d.Complete = map[string]bool{}
	}
	maps.Copy(d.Complete, o.Complete)
}

// Service returns a Service.
func (d *Directory) Service(name model.NamespacedName) (ServiceObject, bool) {
	for _, s := range d.Services {
		if s.NamespacedName == name {
			return s, true
		}
	}
	return ServiceObject{}, false
}

// PodOf returns the name of the pod of an endpoint in a slice, or "".
func (d *Directory) PodOf(slice model.NamespacedName, addr netip.Addr) string {
	if d.bySlice == nil {
		d.bySlice = make(map[model.NamespacedName]int, len(d.Slices))
		for i, s := range d.Slices {
			d.bySlice[s.NamespacedName] = i
		}
	}
	i, ok := d.bySlice[slice]
	if !ok {
		return ""
	}
	return cmp.Or(d.Slices[i].podAt(addr, false), d.Slices[i].podAt(addr, true))
}

// podAt returns the name of the pod of an endpoint that terminates or does not, or "".
func (s *SliceObject) podAt(addr netip.Addr, terminating bool) string {
	for i, e := range s.Endpoints {
		has := len(e.Addresses) > 0 && isAddr(e.Addresses[0], addr)
		if has && s.Pods[i] != "" && ptr.Deref(e.Terminating, false) == terminating {
			return s.Namespace + "/" + s.Pods[i]
		}
	}
	return ""
}

// HasSlice reports whether a slice is there.
func (d *Directory) HasSlice(name model.NamespacedName) bool {
	return slices.ContainsFunc(d.Slices, func(s SliceObject) bool { return s.NamespacedName == name })
}

// HasPod reports whether a pod of that name is an endpoint of the slice.
func (s *SliceObject) HasPod(name string) bool { return slices.Contains(s.Pods, name) }

// HasAddr reports whether an endpoint of the slice has an address.
func (s *SliceObject) HasAddr(addr netip.Addr) bool {
	return slices.ContainsFunc(s.Endpoints, func(e model.SliceEndpoint) bool {
		return len(e.Addresses) > 0 && isAddr(e.Addresses[0], addr)
	})
}

// PodAt returns the pod that has an address, according to pods or else to slices. It is "" if none
// is known, or if the address is a node's, which several pods may share.
func (d *Directory) PodAt(addr netip.Addr) (name string) {
	for _, p := range d.Pods {
		if slices.Contains(p.Addrs, addr) && !p.HostNetwork && !p.Done {
			return p.String()
		}
	}
	for _, n := range d.Nodes {
		if slices.ContainsFunc(n.Addresses, func(s string) bool { return isAddr(s, addr) }) {
			return ""
		}
	}
	for _, terminating := range []bool{false, true} { // an older pod may have had the address
		for i := range d.Slices {
			if name := d.Slices[i].podAt(addr, terminating); name != "" {
				return name
			}
		}
	}
	return ""
}

// Pod returns a pod by namespace/name.
func (d *Directory) Pod(name string) (PodObject, bool) {
	for _, p := range d.Pods {
		if p.String() == name {
			return p, true
		}
	}
	return PodObject{}, false
}

// Selected returns the pods of a namespace that a selector matches, and the number of pods there.
func (d *Directory) Selected(namespace string, selector labels.Selector) (list []PodObject, all int) {
	for _, p := range d.Pods {
		if p.Namespace != namespace || p.Done {
			continue
		}
		all++
		if selector.Matches(labels.Set(p.Labels)) {
			list = append(list, p)
		}
	}
	return list, all
}

func isAddr(text string, a netip.Addr) bool {
	b, err := model.ParseAddr(text)
	return err == nil && b == a
}

func addrsOf(texts []string) []netip.Addr {
	var out []netip.Addr
	for _, text := range texts {
		if a, err := model.ParseAddr(text); err == nil && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}
