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

// pod is an endpoint.
type pod struct {
	number             int // of all pods that ever were
	node               int
	ready, terminating bool
	slice              *slice
	written            *discoveryv1.Endpoint // as it is in objects; nil: to be written
}

func (c *Cluster) newPod() *pod {
	p := &pod{number: c.pods, node: c.rng.IntN(c.nodes)}
	c.pods++
	return p
}

// condition changes the conditions of a pod.
func (p *pod) condition(ready, terminating bool) {
	p.ready, p.terminating, p.written = ready, terminating, nil
}

func (p *pod) address() netip.Addr { return nth(podRange, p.number) }

// add puts a pod where there is room, or into a new slice.
func (c *Cluster) add(s *service, p *pod) {
	s.pods = append(s.pods, p)
	i := slices.IndexFunc(s.slices, func(sl *slice) bool { return len(sl.pods) < maxPerSlice })
	if i < 0 {
		i = len(s.slices)
		s.slices = append(s.slices, c.newSlice(s))
	}
	p.slice = s.slices[i]
	p.slice.pods = append(p.slice.pods, p)
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

// remove removes a pod, and reports whether its slice is gone, too: the controller leaves a Service at least one.
func (s *service) remove(p *pod) (gone bool) {
	same := func(o *pod) bool { return o == p }
	s.pods, p.slice.pods = slices.DeleteFunc(s.pods, same), slices.DeleteFunc(p.slice.pods, same)
	if gone = len(p.slice.pods) == 0 && len(s.slices) > 1; gone {
		s.slices = slices.DeleteFunc(s.slices, func(o *slice) bool { return o == p.slice })
	}
	return gone
}

// slice writes sl as the EndpointSlice controller does.
func (c *Cluster) slice(s *service, sl *slice) *discoveryv1.EndpointSlice {
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
			ManagedFields: managedFields("kube-controller-manager", 650, metav1.NewTime(sl.triggered)),
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   make([]discoveryv1.Endpoint, 0, len(sl.pods)),
		Ports: []discoveryv1.EndpointPort{{
			Name: new(portName), Protocol: new(corev1.ProtocolTCP), Port: new(int32(targetPort)),
		}},
	}
	o.Labels[discoveryv1.LabelServiceName] = s.name
	o.Labels[discoveryv1.LabelManagedBy] = "endpointslice-controller.k8s.io"
	for _, p := range sl.pods {
		if p.written == nil {
			p.written = s.endpoint(p)
		}
		o.Endpoints = append(o.Endpoints, *p.written)
	}
	return o
}

func (s *service) endpoint(p *pod) *discoveryv1.Endpoint {
	return &discoveryv1.Endpoint{
		Addresses: []string{p.address().String()},
		Conditions: discoveryv1.EndpointConditions{
			Ready: new(p.ready), Serving: new(p.ready || p.terminating), Terminating: new(p.terminating),
		},
		NodeName: new(nodeName(p.node)),
		Zone:     new(zone(p.node)),
		TargetRef: &corev1.ObjectReference{
			Kind: "Pod", Namespace: s.namespace, Name: fmt.Sprintf("%s-7d4b9c6f8-%05x", s.name, p.number),
			UID: uid("b0", p.number),
		},
	}
}
