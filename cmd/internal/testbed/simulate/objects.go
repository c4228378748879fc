package simulate

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// apiObject returns an object as an API server sends it: the inverse of package sync/kube.
func apiObject(o modeltest.Object, version uint64) runtime.Object {
	meta := metav1.ObjectMeta{
		Namespace: o.Ref().NamespacedName.Namespace, Name: o.Ref().NamespacedName.Name,
		ResourceVersion: strconv.FormatUint(version, 10),
	}
	switch o := o.(type) {
	case modeltest.Service:
		return apiService(&o.Service, meta)
	case modeltest.Slice:
		return apiSlice(&o.EndpointSlice, meta)
	case modeltest.Node:
		return apiNode(&o.Node, meta)
	case modeltest.ServiceCIDR:
		return &networkingv1.ServiceCIDR{ObjectMeta: meta, Spec: networkingv1.ServiceCIDRSpec{CIDRs: o.CIDRs}}
	}
	panic(fmt.Sprintf("no kind for %T", o))
}

func apiService(s *model.Service, meta metav1.ObjectMeta) *corev1.Service {
	meta.CreationTimestamp, meta.Labels, meta.Annotations = metav1.NewTime(s.Created), s.Labels, s.Annotations
	out := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceType(s.Type), ClusterIPs: s.ClusterIPs, ExternalIPs: s.ExternalIPs,
		ExternalTrafficPolicy:    corev1.ServiceExternalTrafficPolicy(s.ExternalTrafficPolicy),
		InternalTrafficPolicy:    (*corev1.ServiceInternalTrafficPolicy)(&s.InternalTrafficPolicy),
		SessionAffinity:          corev1.ServiceAffinity(s.SessionAffinity),
		LoadBalancerSourceRanges: s.SourceRanges, HealthCheckNodePort: s.HealthCheckNodePort,
	}}
	if s.AffinityTimeout != nil {
		out.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: s.AffinityTimeout}}
	}
	for _, p := range s.Ports {
		out.Spec.Ports = append(out.Spec.Ports, corev1.ServicePort{Name: p.Name, Protocol: corev1.Protocol(p.Protocol), Port: p.Port, NodePort: p.NodePort})
	}
	for _, in := range s.Ingress {
		mode := corev1.LoadBalancerIPMode(in.IPMode)
		out.Status.LoadBalancer.Ingress = append(out.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: in.IP, IPMode: &mode})
	}
	return out
}

func apiSlice(s *model.EndpointSlice, meta metav1.ObjectMeta) *discoveryv1.EndpointSlice {
	meta.Labels = s.Labels
	out := &discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: discoveryv1.AddressType(s.AddressType)}
	for _, p := range s.Ports {
		out.Ports = append(out.Ports, discoveryv1.EndpointPort{Name: p.Name, Protocol: (*corev1.Protocol)(p.Protocol), Port: p.Port})
	}
	for _, e := range s.Endpoints {
		made := discoveryv1.Endpoint{
			Addresses:  e.Addresses,
			Conditions: discoveryv1.EndpointConditions{Ready: e.Ready, Serving: e.Serving, Terminating: e.Terminating},
			NodeName:   &e.NodeName,
		}
		if len(e.HintNodes)+len(e.HintZones) > 0 {
			made.Hints = &discoveryv1.EndpointHints{}
		}
		for _, n := range e.HintNodes {
			made.Hints.ForNodes = append(made.Hints.ForNodes, discoveryv1.ForNode{Name: n})
		}
		for _, z := range e.HintZones {
			made.Hints.ForZones = append(made.Hints.ForZones, discoveryv1.ForZone{Name: z})
		}
		out.Endpoints = append(out.Endpoints, made)
	}
	return out
}

func apiNode(n *model.Node, meta metav1.ObjectMeta) *corev1.Node {
	meta.UID, meta.Labels = types.UID(n.UID), map[string]string{model.LabelZone: n.Zone}
	if n.Deleting {
		meta.DeletionTimestamp = new(metav1.NewTime(modeltest.Moment(0)))
	}
	out := &corev1.Node{ObjectMeta: meta, Spec: corev1.NodeSpec{PodCIDRs: n.PodCIDRs}}
	for _, t := range n.Taints {
		out.Spec.Taints = append(out.Spec.Taints, corev1.Taint{Key: t})
	}
	for _, a := range n.Addresses {
		out.Status.Addresses = append(out.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return out
}
