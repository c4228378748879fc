package diagnosis

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

// brokenIP is the cluster IP of a Service that does not answer, and externalIP its external IP.
const brokenIP, externalIP = "172.30.1.1", "192.168.99.77"

// serviceBreakages change a Service of default, with cluster IP and port 80, or its slice, with pod-1 and port 8080.
// The script explain-breakages has more, and what explain says of each.
var serviceBreakages = map[string]func(*corev1.Service, *discoveryv1.EndpointSlice){
	"selector": func(s *corev1.Service, e *discoveryv1.EndpointSlice) {
		s.Spec.Selector["app"] = "wbe"
		e.Ports, e.Endpoints = nil, nil
	},
	"number-of-port": func(s *corev1.Service, e *discoveryv1.EndpointSlice) {
		s.Spec.Ports[0].TargetPort = intstr.FromInt32(9999)
		e.Ports[0].Port = new(int32(9999))
	},
	"source-ranges": func(s *corev1.Service, _ *discoveryv1.EndpointSlice) {
		s.Spec.Type, s.Spec.LoadBalancerSourceRanges = corev1.ServiceTypeLoadBalancer, []string{"198.51.100.0/24"}
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: externalIP}}
	},
	"local": func(s *corev1.Service, e *discoveryv1.EndpointSlice) {
		s.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
		e.Endpoints[0].NodeName = new("node-2")
	},
}

// breakService makes such a Service, which does not answer the client.
func breakService(name string) func(*testing.T, *patient) {
	return func(t *testing.T, p *patient) {
		s := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeClusterIP, ClusterIP: brokenIP, ClusterIPs: []string{brokenIP},
				Selector: map[string]string{"app": name},
				Ports: []corev1.ServicePort{{
					Name: "http", Protocol: corev1.ProtocolTCP, Port: 80,
					TargetPort: intstr.FromInt32(8080),
				}},
			},
		}
		slice := vmapdtest.WebSlice(2)
		slice.Name, slice.Labels = name+"-1", map[string]string{discoveryv1.LabelServiceName: name}
		slice.Ports = []discoveryv1.EndpointPort{{
			Name: new("http"), Protocol: new(corev1.ProtocolTCP),
			Port: new(int32(8080)),
		}}
		serviceBreakages[name](s, slice)
		p.API.Set(s)
		p.API.Set(slice)
		dest := brokenIP
		if len(s.Status.LoadBalancer.Ingress) > 0 {
			dest = externalIP
		}
		p.wantSilence(t, p.Client, netip.AddrPortFrom(netip.MustParseAddr(dest), 80))
	}
}
