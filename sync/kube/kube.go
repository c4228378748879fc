package kube

import (
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/vmapd/vmapd/model"
)

// Set writes what the proxy needs of an object of the API into a builder. Of other kinds it needs nothing.
func Set(b *model.Builder, o any) {
	switch o := o.(type) {
	case *corev1.Service:
		b.SetService(Service(o))
	case *discoveryv1.EndpointSlice:
		b.SetEndpointSlice(EndpointSlice(o))
	case *corev1.Node:
		b.SetNode(Node(o))
	case *networkingv1.ServiceCIDR:
		b.SetServiceCIDR(ServiceCIDR(o))
	}
}

// Delete removes an object that Set has written.
func Delete(b *model.Builder, o model.ObjectRef) {
	switch o.Kind {
	case "Service":
		b.DeleteService(o.NamespacedName)
	case "EndpointSlice":
		b.DeleteEndpointSlice(o.NamespacedName)
	case "Node":
		b.DeleteNode(o.Name)
	case "ServiceCIDR":
		b.DeleteServiceCIDR(o.Name)
	}
}

// Version returns the version of an object. Those of all our kinds are numbers that grow (KEP-5504). 0: unknown.
func Version(o metav1.Object) uint64 {
	n, _ := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	return n
}

// Service copies the fields of a v1 Service that the proxy needs. An unset field stays empty: the API server has set
// its defaults, and the builder sets the same ones for objects from files. The result shares the object's maps and
// slices; neither may be changed.
func Service(s *corev1.Service) model.Service {
	out := model.Service{
		NamespacedName:        model.NamespacedName{Namespace: s.Namespace, Name: s.Name},
		Version:               Version(s),
		Labels:                s.Labels,
		UID:                   string(s.UID),
		Created:               s.CreationTimestamp.Time,
		Annotations:           s.Annotations,
		Type:                  string(s.Spec.Type),
		ClusterIPs:            s.Spec.ClusterIPs,
		ExternalIPs:           s.Spec.ExternalIPs,
		ExternalTrafficPolicy: string(s.Spec.ExternalTrafficPolicy),
		InternalTrafficPolicy: string(ptr.Deref(s.Spec.InternalTrafficPolicy, "")),
		SessionAffinity:       string(s.Spec.SessionAffinity),
		SourceRanges:          s.Spec.LoadBalancerSourceRanges,
		HealthCheckNodePort:   s.Spec.HealthCheckNodePort,
	}
	// Manifests often have only clusterIP; an API server fills in clusterIPs (KEP-563).
	if len(out.ClusterIPs) == 0 && s.Spec.ClusterIP != "" {
		out.ClusterIPs = []string{s.Spec.ClusterIP}
	}
	if c := s.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil {
		out.AffinityTimeout = c.ClientIP.TimeoutSeconds
	}
	out.Ports = slices.Grow(out.Ports, len(s.Spec.Ports))
	for _, p := range s.Spec.Ports {
		out.Ports = append(out.Ports, model.Port{
			Name:     p.Name,
			Protocol: string(p.Protocol),
			Port:     p.Port,
			NodePort: p.NodePort,
		})
	}
	for _, in := range s.Status.LoadBalancer.Ingress {
		out.Ingress = append(out.Ingress, model.Ingress{IP: in.IP, IPMode: string(ptr.Deref(in.IPMode, ""))})
	}
	return out
}

// EndpointSlice copies the fields of a discovery/v1 EndpointSlice that the proxy needs. The
// result shares the object's slices and pointers; neither may be changed.
func EndpointSlice(s *discoveryv1.EndpointSlice) model.EndpointSlice {
	out := model.EndpointSlice{
		NamespacedName: model.NamespacedName{Namespace: s.Namespace, Name: s.Name},
		Version:        Version(s),
		Labels:         s.Labels,
		AddressType:    string(s.AddressType),
	}
	out.Ports = slices.Grow(out.Ports, len(s.Ports))
	for _, p := range s.Ports {
		out.Ports = append(out.Ports, model.SlicePort{
			Name:     p.Name,
			Protocol: (*string)(p.Protocol),
			Port:     p.Port,
		})
	}
	out.Endpoints = slices.Grow(out.Endpoints, len(s.Endpoints))
	for _, e := range s.Endpoints {
		ep := model.SliceEndpoint{
			Addresses:   e.Addresses,
			Ready:       e.Conditions.Ready,
			Serving:     e.Conditions.Serving,
			Terminating: e.Conditions.Terminating,
			NodeName:    ptr.Deref(e.NodeName, ""),
		}
		if e.Hints != nil {
			for _, n := range e.Hints.ForNodes {
				ep.HintNodes = append(ep.HintNodes, n.Name)
			}
			for _, z := range e.Hints.ForZones {
				ep.HintZones = append(ep.HintZones, z.Name)
			}
		}
		out.Endpoints = append(out.Endpoints, ep)
	}
	return out
}

// Triggered returns the time of the change of a pod or of the Service that caused this version of a slice. The slice's
// controller sets it as an annotation. Without the annotation it is the zero time.
func Triggered(s *discoveryv1.EndpointSlice) time.Time {
	t, _ := time.Parse(time.RFC3339Nano, s.Annotations[corev1.EndpointsLastChangeTriggerTime])
	return t // zero after an error
}

// Node copies the fields of a Node that the proxy needs: its addresses of type InternalIP, then those of type
// ExternalIP, as kube-proxy finds the primary one (k8s.io/component-helpers, GetNodeHostIPs).
func Node(n *corev1.Node) model.Node {
	out := model.Node{
		Name: n.Name, Zone: n.Labels[model.LabelZone], PodCIDRs: n.Spec.PodCIDRs,
		Deleting: n.DeletionTimestamp != nil,
	}
	for _, t := range n.Spec.Taints {
		out.Taints = append(out.Taints, t.Key)
	}
	// As with cluster IPs, an API server fills in the list.
	if len(out.PodCIDRs) == 0 && n.Spec.PodCIDR != "" {
		out.PodCIDRs = []string{n.Spec.PodCIDR}
	}
	for _, kind := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP} {
		for _, a := range n.Status.Addresses {
			if a.Type == kind {
				out.Addresses = append(out.Addresses, a.Address)
			}
		}
	}
	return out
}

// ServiceCIDR copies the ranges of a networking/v1 ServiceCIDR (KEP-1880).
func ServiceCIDR(c *networkingv1.ServiceCIDR) model.ServiceCIDR {
	return model.ServiceCIDR{Name: c.Name, CIDRs: c.Spec.CIDRs}
}
