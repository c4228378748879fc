package main

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/model"
)

// The Services are web, with the endpoints pod-1, pod-2 and, on another Node, pod-6; dns, with pod-1 and, on that Node,
// pod-7; and probe, with one endpoint, which changes.
const (
	pods           = 7
	otherNode      = "node-2"
	podPort        = 8080
	webNodePort    = 30080
	dnsNodePort    = 30053 // chains for as many endpoints as web has without the other Node are there before
	probeAtFirst   = 3
	probeElsewhere = 4
)

var (
	webVIP   = netip.MustParseAddrPort("172.30.0.10:80")       //nolint:gochecknoglobals // a constant
	webVIP6  = netip.MustParseAddrPort("[fd00:172:30::10]:80") //nolint:gochecknoglobals // a constant
	dnsVIP   = netip.MustParseAddrPort("172.30.0.12:80")       //nolint:gochecknoglobals // a constant
	dnsVIP6  = netip.MustParseAddrPort("[fd00:172:30::12]:80") //nolint:gochecknoglobals // a constant
	probeVIP = netip.MustParseAddrPort("172.30.0.11:80")       //nolint:gochecknoglobals // a constant
)

func podName(n int) string { return "pod-" + strconv.Itoa(n) }

// The endpoints of the Services, and those on the other Node.
func webPods() []int   { return []int{1, 2, 6} }
func dnsPods() []int   { return []int{1, 7} }
func otherPods() []int { return []int{6, 7} }

// setObjects writes all objects to the API server.
func (w *world) setObjects() {
	w.server.Set(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: lab.NodeName},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: lab.NodeIP4}, {Type: corev1.NodeInternalIP, Address: lab.NodeIP6},
		}},
	})
	w.server.Set(newService("default", "web", webNodePort, webVIP.Addr(), webVIP6.Addr()))
	w.setSlices("default", "web", webPods()...)
	w.server.Set(newService("kube-system", "dns", dnsNodePort, dnsVIP.Addr(), dnsVIP6.Addr()))
	w.setSlices("kube-system", "dns", dnsPods()...)
	w.server.Set(newService("default", "probe", 0, probeVIP.Addr()))
	w.setProbe(probeAtFirst)
}

// setProbe makes a pod the endpoint of the Service probe.
func (w *world) setProbe(pod int) { w.setSlices("default", "probe", pod) }

func newService(namespace, name string, nodePort int32, vips ...netip.Addr) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: vips[0].String()},
	}
	if nodePort != 0 {
		s.Spec.Type = corev1.ServiceTypeNodePort
	}
	for _, vip := range vips {
		s.Spec.ClusterIPs = append(s.Spec.ClusterIPs, vip.String())
		s.Spec.IPFamilies = append(s.Spec.IPFamilies, corev1.IPFamily(model.FamilyOf(vip).String()))
	}
	for _, protocol := range protocols() {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{
			Name: portName(protocol), Protocol: protocol,
			Port: int32(webVIP.Port()), TargetPort: intstr.FromInt32(podPort), NodePort: nodePort,
		})
	}
	return s
}

// protocols are those of the ports of each Service.
func protocols() []corev1.Protocol { return []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} }

func portName(p corev1.Protocol) string { return strings.ToLower(string(p)) }

// setSlices writes the EndpointSlices of a Service, one for each family.
func (w *world) setSlices(namespace, service string, pods ...int) {
	for family, first := range map[discoveryv1.AddressType]string{
		discoveryv1.AddressTypeIPv4: lab.FirstPodIP4, discoveryv1.AddressTypeIPv6: lab.FirstPodIP6,
	} {
		s := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: service + "-" + string(family),
				Labels: map[string]string{discoveryv1.LabelServiceName: service},
			},
			AddressType: family,
		}
		for _, protocol := range protocols() {
			s.Ports = append(s.Ports, discoveryv1.EndpointPort{
				Name: new(portName(protocol)), Protocol: &protocol, Port: new(int32(podPort)),
			})
		}
		for _, pod := range pods {
			addr := netip.MustParseAddr(first)
			for range pod - 1 {
				addr = addr.Next()
			}
			node := lab.NodeName
			if slices.Contains(otherPods(), pod) {
				node = otherNode
			}
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{addr.String()}, NodeName: &node, Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
			})
		}
		w.server.Set(s)
	}
}
