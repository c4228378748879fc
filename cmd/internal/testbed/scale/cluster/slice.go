package cluster

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxPerSlice is the EndpointSlice controller's limit of endpoints in a slice.
const maxPerSlice = 100

// slice is an EndpointSlice.
type slice struct {
	name      string
	number    int
	version   int64 // metadata.generation
	triggered time.Time
	pods      []*pod
}

// pod is an endpoint, in one slice of each family that its Service is in.
type pod struct {
	number             int // of all pods that ever were
	node               int
	ready, terminating bool
	slices             [len(families)]*slice
	written            [len(families)]*discoveryv1.Endpoint // as it is in objects; nil: to be written
}

func (c *Cluster) newPod() *pod {
	p := &pod{number: c.pods, node: c.rng.IntN(c.nodes)}
	c.pods++
	return p
}

// condition changes the conditions of a pod.
func (p *pod) condition(ready, terminating bool) {
	p.ready, p.terminating, p.written = ready, terminating, [len(families)]*discoveryv1.Endpoint{}
}

// podRanges are where pods' addresses begin, by family.
var podRanges = [len(families)]netip.Addr{netip.MustParseAddr("10.128.0.1"), netip.MustParseAddr("fd00:10:128::1")}

func (p *pod) address(f int) netip.Addr { return nth(podRanges[f], p.number) }

// add puts a pod where there is room, or into a new slice.
func (c *Cluster) add(s *service, p *pod) {
	s.pods = append(s.pods, p)
	for f := range s.families() {
		i := slices.IndexFunc(s.slices[f], func(sl *slice) bool { return len(sl.pods) < maxPerSlice })
		if i < 0 {
			i = len(s.slices[f])
			s.slices[f] = append(s.slices[f], c.newSlice(s))
		}
		sl := s.slices[f][i]
		sl.pods = append(sl.pods, p)
		p.slices[f] = sl
	}
}

// empty gives a Service the slices that the controller writes without pods.
func (c *Cluster) empty(s *service) {
	for f := range s.families() {
		s.slices[f] = append(s.slices[f], c.newSlice(s))
	}
}

func (c *Cluster) newSlice(s *service) *slice {
	s.made++
	const letters = "bcdfghjklmnpqrstvwxz2456789" // as Kubernetes generates names
	suffix := make([]byte, 5)
	for i, n := 0, s.made+s.index*31; i < len(suffix); i, n = i+1, n/len(letters) {
		suffix[i] = letters[n%len(letters)]
	}
	return &slice{
		name:   fmt.Sprintf("%s-%s", s.name, suffix),
		number: s.index<<16 | s.made, triggered: c.epoch,
	}
}

// remove removes a pod. It returns the deleted slices: the controller leaves a Service at least
// one slice of each family.
func (s *service) remove(p *pod) (gone [len(families)]*slice) {
	same := func(o *pod) bool { return o == p }
	s.pods = slices.DeleteFunc(s.pods, same)
	for f := range s.families() {
		sl := p.slices[f]
		sl.pods = slices.DeleteFunc(sl.pods, same)
		if len(sl.pods) == 0 && len(s.slices[f]) > 1 {
			s.slices[f] = slices.DeleteFunc(s.slices[f], func(o *slice) bool { return o == sl })
			gone[f] = sl
		}
	}
	return gone
}

// slice writes sl as the EndpointSlice controller does.
func (c *Cluster) slice(s *service, f int, sl *slice) *discoveryv1.EndpointSlice {
	created := metav1.NewTime(c.epoch.Add(time.Duration(s.index-most) * time.Second))
	o := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.namespace, Name: sl.name, GenerateName: s.name + "-", UID: uid("e5", sl.number),
			Generation: sl.version + 1, CreationTimestamp: created,
			Labels:      s.labels(),
			Annotations: map[string]string{corev1.EndpointsLastChangeTriggerTime: sl.triggered.UTC().Format(time.RFC3339Nano)},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Service", Name: s.name, UID: uid("5e", s.index),
				Controller: new(true), BlockOwnerDeletion: new(true),
			}},
			ManagedFields: managedFields("kube-controller-manager", sliceFields, metav1.NewTime(sl.triggered)),
		},
		AddressType: discoveryv1.AddressType(families[f]),
		Endpoints:   make([]discoveryv1.Endpoint, 0, len(sl.pods)),
	}
	o.Labels[discoveryv1.LabelServiceName] = s.name
	o.Labels[discoveryv1.LabelManagedBy] = "endpointslice-controller.k8s.io"
	if s.headless {
		o.Labels[corev1.IsHeadlessService] = ""
	}
	for _, p := range s.ports {
		o.Ports = append(o.Ports, discoveryv1.EndpointPort{Name: &p.Name, Protocol: &p.Protocol, Port: &p.TargetPort.IntVal})
	}
	for _, p := range sl.pods {
		if p.written[f] == nil {
			p.written[f] = s.endpoint(f, p)
		}
		o.Endpoints = append(o.Endpoints, *p.written[f])
	}
	return o
}

func (s *service) endpoint(f int, p *pod) *discoveryv1.Endpoint {
	e := &discoveryv1.Endpoint{
		Addresses: []string{p.address(f).String()},
		Conditions: discoveryv1.EndpointConditions{
			Ready: new(p.ready), Serving: new(p.ready || p.terminating), Terminating: new(p.terminating),
		},
		NodeName: new(nodeName(p.node)),
		Zone:     new(zone(p.node)),
		TargetRef: &corev1.ObjectReference{
			Kind: "Pod", Namespace: s.namespace, Name: fmt.Sprintf("%s-7d4b9c6f8-%05x", s.name, p.number), UID: uid("b0", p.number),
		},
	}
	if s.hints && p.ready {
		e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: zone(p.node)}}}
	}
	return e
}
