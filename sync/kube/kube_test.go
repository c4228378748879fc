package kube

// Addresses: pods 10.0.0.0/8, cluster IPs 172.30.0.0/16, nodes 192.168.0.0/24,
// external IPs 192.168.99.0/24, outside 203.0.113.0/24.

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

var created = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func bulkyMeta(namespace, name string, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: "u1", ResourceVersion: "7", Generation: 3,
		CreationTimestamp: metav1.NewTime(created),
		Labels:            labels,
		Annotations: map[string]string{
			corev1.EndpointsLastChangeTriggerTime: "2026-01-02T03:04:05Z",
			corev1.LastAppliedConfigAnnotation:    "{a long text}",
			model.AnnotationAlgorithm:             "maglev",
			model.AnnotationConnectionGrace:       "30s",
		},
		DeletionTimestamp: new(metav1.NewTime(created.Add(time.Hour))),
	}
}

func service() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: bulkyMeta("ns1", "svc1", map[string]string{model.LabelServiceProxyName: "other"}),
		Spec: corev1.ServiceSpec{
			Type:       corev1.ServiceTypeLoadBalancer,
			ClusterIP:  "172.30.0.41",
			ClusterIPs: []string{"172.30.0.41", "fd00:30::41"},
			Ports: []corev1.ServicePort{{
				Name: "p80", Protocol: corev1.ProtocolTCP, Port: 80, NodePort: 30080, TargetPort: intstr.FromString("http"),
			}, {
				Name: "p53", Protocol: corev1.ProtocolUDP, Port: 53,
			}},
			ExternalIPs:              []string{"192.168.99.1"},
			LoadBalancerSourceRanges: []string{"203.0.113.0/24"},
			SessionAffinity:          corev1.ServiceAffinityClientIP,
			SessionAffinityConfig:    &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(60))}},
			InternalTrafficPolicy:    new(corev1.ServiceInternalTrafficPolicyLocal),
			ExternalTrafficPolicy:    corev1.ServiceExternalTrafficPolicyLocal,
			HealthCheckNodePort:      30100,
		},
		Status: corev1.ServiceStatus{
			LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{
				{IP: "192.168.99.7", IPMode: new(corev1.LoadBalancerIPModeProxy), Ports: []corev1.PortStatus{{Port: 80}}},
				{Hostname: "lb.example.com"},
			}},
		},
	}
}

func slice() *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  bulkyMeta("ns1", "svc1-a", map[string]string{model.LabelServiceName: "svc1", "app": "web"}),
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{
			{Name: new("p80"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(8080)), AppProtocol: new("http")},
			{},
		},
		Endpoints: []discoveryv1.Endpoint{{
			Addresses:  []string{"10.180.0.1"},
			Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
			NodeName:   new("node1"),
			Zone:       new("z"),
			Hints: &discoveryv1.EndpointHints{
				ForNodes: []discoveryv1.ForNode{{Name: "node1"}}, ForZones: []discoveryv1.ForZone{{Name: "z"}, {Name: "y"}},
			},
		}, {
			Addresses:  []string{"10.180.0.2"},
			Conditions: discoveryv1.EndpointConditions{Ready: new(false)},
			Hints:      &discoveryv1.EndpointHints{},
		}, {
			Addresses: []string{"10.180.2.2"},
			NodeName:  new("node2"),
		}},
	}
}

func node() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: bulkyMeta("", "node1", map[string]string{model.LabelZone: "z"}),
		Spec: corev1.NodeSpec{
			PodCIDR: "10.180.0.0/24", PodCIDRs: []string{"10.180.0.0/24", "fd00:10:180::/64"}, ProviderID: "cloud://1",
			Taints: []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoSchedule, TimeAdded: new(metav1.NewTime(created))}, {Key: "b", Value: "c"}},
		},
		Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeExternalIP, Address: "203.0.113.2"},
				{Type: corev1.NodeHostName, Address: "node1"},
				{Type: corev1.NodeInternalIP, Address: "192.168.0.2"},
				{Type: corev1.NodeInternalDNS, Address: "node1.internal"},
				{Type: corev1.NodeInternalIP, Address: "fd00:40::2"},
			},
		},
	}
}

func TestService(t *testing.T) {
	want := model.Service{
		NamespacedName:        model.NamespacedName{Namespace: "ns1", Name: "svc1"},
		Version:               7,
		UID:                   "u1",
		Created:               created,
		Labels:                map[string]string{model.LabelServiceProxyName: "other"},
		Annotations:           service().Annotations,
		Type:                  "LoadBalancer",
		ClusterIPs:            []string{"172.30.0.41", "fd00:30::41"},
		ExternalIPs:           []string{"192.168.99.1"},
		Ingress:               []model.Ingress{{IP: "192.168.99.7", IPMode: "Proxy"}, {}},
		Ports:                 []model.Port{{Name: "p80", Protocol: "TCP", Port: 80, NodePort: 30080}, {Name: "p53", Protocol: "UDP", Port: 53}},
		InternalTrafficPolicy: "Local",
		ExternalTrafficPolicy: "Local",
		SessionAffinity:       "ClientIP",
		AffinityTimeout:       new(int32(60)),
		SourceRanges:          []string{"203.0.113.0/24"},
		HealthCheckNodePort:   30100,
	}
	testaid.Equal(t, "Service", want, Service(service()))
}

// Old objects may have the fields of one family alone.
func TestOnlyTheSingularField(t *testing.T) {
	for in, want := range map[string][]string{"": nil, "None": {"None"}, "172.30.0.41": {"172.30.0.41"}} {
		testaid.Equal(t, "clusterIP "+in, want, Service(&corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: in}}).ClusterIPs)
	}
	for in, want := range map[string][]string{"": nil, "10.180.0.0/24": {"10.180.0.0/24"}} {
		testaid.Equal(t, "podCIDR "+in, want, Node(&corev1.Node{Spec: corev1.NodeSpec{PodCIDR: in}}).PodCIDRs)
	}
}

func TestEndpointSlice(t *testing.T) {
	want := model.EndpointSlice{
		NamespacedName: model.NamespacedName{Namespace: "ns1", Name: "svc1-a"},
		Version:        7,
		Labels:         map[string]string{model.LabelServiceName: "svc1", "app": "web"},
		AddressType:    "IPv4",
		Ports:          []model.SlicePort{{Name: new("p80"), Protocol: new("TCP"), Port: new(int32(8080))}, {}},
		Endpoints: []model.SliceEndpoint{
			{
				Addresses: []string{"10.180.0.1"}, Ready: new(true), Serving: new(true), Terminating: new(false),
				NodeName: "node1", HintNodes: []string{"node1"}, HintZones: []string{"z", "y"},
			},
			{Addresses: []string{"10.180.0.2"}, Ready: new(false)},
			{Addresses: []string{"10.180.2.2"}, NodeName: "node2"},
		},
	}
	testaid.Equal(t, "EndpointSlice", want, EndpointSlice(slice()))
}

func TestServiceWithoutAnAffinityTimeout(t *testing.T) {
	for _, c := range []*corev1.SessionAffinityConfig{nil, {}, {ClientIP: &corev1.ClientIPConfig{}}} {
		s := service()
		s.Spec.SessionAffinityConfig = c
		if got := Service(s).AffinityTimeout; got != nil {
			t.Errorf("sessionAffinityConfig %v: a timeout of %d s", c, *got)
		}
	}
}

func TestNodeListsInternalAddressesFirst(t *testing.T) {
	want := model.Node{
		Name: "node1", Addresses: []string{"192.168.0.2", "fd00:40::2", "203.0.113.2"},
		Zone: "z", PodCIDRs: []string{"10.180.0.0/24", "fd00:10:180::/64"},
		Deleting: true, Taints: []string{"a", "b"},
	}
	testaid.Equal(t, "Node", want, Node(node()))
}

func TestTriggered(t *testing.T) {
	s := slice()
	if got, want := Triggered(s), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC); !got.Equal(want) {
		t.Errorf("Triggered = %v, want %v", got, want)
	}
	for _, text := range []string{"", "yesterday"} {
		s.Annotations[corev1.EndpointsLastChangeTriggerTime] = text
		if got := Triggered(s); !got.IsZero() {
			t.Errorf("Triggered with %q = %v, want the zero time", text, got)
		}
	}
}

func TestServiceCIDR(t *testing.T) {
	ranges := []string{"172.30.0.0/16", "fd00:30::/112"}
	testaid.Equal(t, "ServiceCIDR", model.ServiceCIDR{Name: "kubernetes", CIDRs: ranges}, ServiceCIDR(&networkingv1.ServiceCIDR{
		ObjectMeta: bulkyMeta("", "kubernetes", nil), Spec: networkingv1.ServiceCIDRSpec{CIDRs: ranges},
	}))
}
