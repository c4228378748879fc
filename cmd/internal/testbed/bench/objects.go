package bench

import (
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/model"
)

// LabNode is the Node of the lab.
func LabNode() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: lab.NodeName},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: lab.NodeIP4}, {Type: corev1.NodeInternalIP, Address: lab.NodeIP6},
		}},
	}
}

// Service returns a Service of the namespace default with cluster IPs and, for each protocol, the port of the pods.
func Service(name string, port, podPort int32, protocols []corev1.Protocol, ips ...netip.Addr) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: ips[0].String()},
	}
	for _, ip := range ips {
		s.Spec.ClusterIPs = append(s.Spec.ClusterIPs, ip.String())
		s.Spec.IPFamilies = append(s.Spec.IPFamilies, corev1.IPFamily(model.FamilyOf(ip).String()))
	}
	for _, p := range protocols {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{
			Name: strings.ToLower(string(p)), Protocol: p, Port: port, TargetPort: intstr.FromInt32(podPort),
		})
	}
	return s
}

// Slices are the EndpointSlices of a Service, one for each family, with pods of the Node as endpoints.
func Slices(s *corev1.Service, pods ...*lab.Pod) (all []*discoveryv1.EndpointSlice) {
	for _, family := range s.Spec.IPFamilies {
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: s.Namespace, Name: s.Name + "-" + strings.ToLower(string(family)),
				Labels: map[string]string{discoveryv1.LabelServiceName: s.Name},
			},
			AddressType: discoveryv1.AddressType(family),
		}
		for _, p := range s.Spec.Ports {
			slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{
				Name: new(p.Name), Protocol: new(p.Protocol), Port: new(p.TargetPort.IntVal),
			})
		}
		for _, p := range pods {
			addr := p.IP4
			if family == corev1.IPv6Protocol {
				addr = p.IP6
			}
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{addr.String()}, NodeName: new(lab.NodeName),
				Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
			})
		}
		all = append(all, slice)
	}
	return all
}
