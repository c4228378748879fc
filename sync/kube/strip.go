package kube

import (
	"slices"
	"unique"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmapd/vmapd/model"
)

// The Strip functions change the object in place, and keep exactly what the
// functions of kube.go and the informer itself (name, resource version) read.
// They are idempotent, as client-go may call a transform twice on one object.

// StripService drops what the proxy never reads of a Service.
func StripService(s *corev1.Service) {
	var ports []corev1.ServicePort
	for _, p := range s.Spec.Ports {
		ports = append(ports, corev1.ServicePort{Name: p.Name, Protocol: p.Protocol, Port: p.Port, NodePort: p.NodePort})
	}
	var ingress []corev1.LoadBalancerIngress
	for _, in := range s.Status.LoadBalancer.Ingress {
		ingress = append(ingress, corev1.LoadBalancerIngress{IP: in.IP, IPMode: in.IPMode})
	}
	*s = corev1.Service{
		ObjectMeta: stripMeta(&s.ObjectMeta, model.AnnotationAlgorithm, model.AnnotationConnectionGrace),
		Spec: corev1.ServiceSpec{
			Type:                     s.Spec.Type,
			ClusterIP:                s.Spec.ClusterIP,
			ClusterIPs:               s.Spec.ClusterIPs,
			ExternalIPs:              s.Spec.ExternalIPs,
			Ports:                    ports,
			InternalTrafficPolicy:    s.Spec.InternalTrafficPolicy,
			ExternalTrafficPolicy:    s.Spec.ExternalTrafficPolicy,
			SessionAffinity:          s.Spec.SessionAffinity,
			SessionAffinityConfig:    s.Spec.SessionAffinityConfig,
			LoadBalancerSourceRanges: s.Spec.LoadBalancerSourceRanges,
			HealthCheckNodePort:      s.Spec.HealthCheckNodePort,
		},
		Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: ingress}},
	}
}

// StripEndpointSlice drops what the proxy never reads of an EndpointSlice. What is
// left of an endpoint is shared where it can be: a large cluster has hundreds of
// thousands of them, yet few node names and only two values of a condition.
func StripEndpointSlice(s *discoveryv1.EndpointSlice) {
	// The time at which the pod or Service changed that caused this version of the
	// slice: the start of the programming latency that kube-proxy reports.
	meta := stripMeta(&s.ObjectMeta, corev1.EndpointsLastChangeTriggerTime)
	var endpoints []discoveryv1.Endpoint
	if len(s.Endpoints) > 0 {
		endpoints = make([]discoveryv1.Endpoint, 0, len(s.Endpoints))
	}
	var node *string // slices often list the endpoints of a node together
	var hints *discoveryv1.EndpointHints
	for _, e := range s.Endpoints {
		if e.NodeName == nil {
			node = nil
		} else if node == nil || *node != *e.NodeName {
			shared := unique.Make(*e.NodeName).Value()
			node = &shared
		}
		hints = stripHints(e.Hints, hints)
		endpoints = append(endpoints, discoveryv1.Endpoint{
			Addresses: e.Addresses,
			NodeName:  node,
			Hints:     hints,
			Conditions: discoveryv1.EndpointConditions{
				Ready:       sharedBool(e.Conditions.Ready),
				Serving:     sharedBool(e.Conditions.Serving),
				Terminating: sharedBool(e.Conditions.Terminating),
			},
		})
	}
	var ports []discoveryv1.EndpointPort
	for _, p := range s.Ports {
		ports = append(ports, discoveryv1.EndpointPort{Name: p.Name, Protocol: p.Protocol, Port: p.Port})
	}
	*s = discoveryv1.EndpointSlice{
		ObjectMeta:  meta,
		AddressType: s.AddressType,
		Endpoints:   endpoints,
		Ports:       ports,
	}
}

// stripHints returns the hints of an endpoint with names that all objects share, or those
// of the endpoint before where they say the same.
func stripHints(h, before *discoveryv1.EndpointHints) *discoveryv1.EndpointHints {
	switch {
	case h == nil:
		return nil
	case before != nil && slices.Equal(h.ForNodes, before.ForNodes) && slices.Equal(h.ForZones, before.ForZones):
		return before
	}
	out := new(discoveryv1.EndpointHints)
	for _, n := range h.ForNodes {
		out.ForNodes = append(out.ForNodes, discoveryv1.ForNode{Name: unique.Make(n.Name).Value()})
	}
	for _, z := range h.ForZones {
		out.ForZones = append(out.ForZones, discoveryv1.ForZone{Name: unique.Make(z.Name).Value()})
	}
	return out
}

// StripNode drops what the proxy never reads of a Node: nearly all of it, as a
// Node lists its images.
func StripNode(n *corev1.Node) {
	var taints []corev1.Taint
	for _, t := range n.Spec.Taints {
		taints = append(taints, corev1.Taint{Key: t.Key})
	}
	*n = corev1.Node{
		ObjectMeta: stripMeta(&n.ObjectMeta),
		Spec:       corev1.NodeSpec{PodCIDR: n.Spec.PodCIDR, PodCIDRs: n.Spec.PodCIDRs, Taints: taints},
		Status:     corev1.NodeStatus{Addresses: n.Status.Addresses},
	}
}

// StripServiceCIDR drops what the proxy never reads of a ServiceCIDR.
func StripServiceCIDR(c *networkingv1.ServiceCIDR) {
	*c = networkingv1.ServiceCIDR{
		ObjectMeta: stripMeta(&c.ObjectMeta),
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: c.Spec.CIDRs},
	}
}

// stripMeta returns what is kept of an object's metadata: of its annotations those that are
// named.
func stripMeta(m *metav1.ObjectMeta, annotations ...string) metav1.ObjectMeta {
	out := metav1.ObjectMeta{
		Namespace:         m.Namespace,
		Name:              m.Name,
		UID:               m.UID, // events name the object by it
		ResourceVersion:   m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp,
		DeletionTimestamp: m.DeletionTimestamp,
	}
	for _, key := range []string{
		model.LabelServiceProxyName, model.LabelHeadless, model.LabelServiceName, model.LabelZone,
	} {
		if v, ok := m.Labels[key]; ok {
			if out.Labels == nil {
				out.Labels = make(map[string]string, 1)
			}
			out.Labels[key] = v
		}
	}
	for _, key := range annotations {
		if v, ok := m.Annotations[key]; ok {
			if out.Annotations == nil {
				out.Annotations = make(map[string]string, 1)
			}
			out.Annotations[key] = v
		}
	}
	return out
}

// sharedBool returns a pointer to the same value that is shared by all objects.
func sharedBool(b *bool) *bool {
	switch {
	case b == nil:
		return nil
	case *b:
		return &yes
	default:
		return &no
	}
}

// Never written: see sharedBool.
var yes, no = true, false
