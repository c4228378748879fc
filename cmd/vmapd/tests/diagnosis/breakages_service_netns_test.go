package diagnosis

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/model"
)

// serviceBreakage is a Service of default, with a slice, that does not answer.
type serviceBreakage struct {
	name string
	// change breaks the Service, with cluster IP and port 80, or its slice, with pod-1 and port 8080.
	change func(*corev1.Service, *discoveryv1.EndpointSlice)
	dest   string   // a connection there fails, see serviceIP; "": it does not
	to     string   // the destination; "": svc/NAME
	args   []string // of explain or, if it is the first of them, trace
	want   string   // in its output, with one space between words
}

// serviceIP is the cluster IP of the serviceBreakage with an index, and externalIP its external IP.
func serviceIP(i int) netip.Addr { return netip.AddrFrom4([4]byte{172, 30, 1, byte(i)}) }

const externalIP = "192.168.99.77"

func (b serviceBreakage) objects(i int) (*corev1.Service, *discoveryv1.EndpointSlice) {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: b.name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: serviceIP(i).String(), ClusterIPs: []string{serviceIP(i).String()}, Selector: map[string]string{"app": b.name},
			Ports: []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, TargetPort: intstr.FromInt32(8080)}},
		},
	}
	slice := vmapdtest.WebSlice(2)
	slice.Name, slice.Labels = b.name+"-1", map[string]string{discoveryv1.LabelServiceName: b.name}
	slice.Ports = []discoveryv1.EndpointPort{{Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(8080))}}
	slice.Endpoints[0].TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: "pod-1"}
	b.change(s, slice)
	return s, slice
}

// Ways to break a Service, with the line of explain, by the daemon, that names the cause. The daemon
// has the permissions of the manifest, and so none for pods.
var serviceBreakages = []serviceBreakage{
	{
		name: "selector", dest: "clusterIP",
		change: func(s *corev1.Service, e *discoveryv1.EndpointSlice) {
			s.Spec.Selector["app"] = "wbe"
			e.Ports, e.Endpoints = nil, nil
		},
		want: "spec.selector of Service default/selector is app=wbe. Which pods have these labels?",
	},
	{
		name: "named-port", dest: "clusterIP",
		change: func(s *corev1.Service, e *discoveryv1.EndpointSlice) {
			s.Spec.Ports[0].TargetPort = intstr.FromString("htpp")
			e.Ports = nil
		},
		want: "spec.ports[0].targetPort of Service default/named-port is htpp: does a container of its pods have a port of that name?",
	},
	{
		name: "number-of-port", dest: "clusterIP", args: []string{"trace", "--wait", "500ms"},
		change: func(s *corev1.Service, e *discoveryv1.EndpointSlice) {
			s.Spec.Ports[0].TargetPort = intstr.FromInt32(9999)
			e.Ports[0].Port = new(int32(9999))
		},
		want: "=> forwarded to 10.0.0.2:9999 by veth1, which refused it with a TCP reset: nothing listens on that port there.",
	},
	{
		name: "not-ready", dest: "clusterIP",
		change: func(_ *corev1.Service, e *discoveryv1.EndpointSlice) {
			e.Endpoints[0].Conditions.Ready = new(false)
		},
		want: "10.0.0.2:8080 not ready (readiness probe failing, or still starting?); pod-1 on this node, EndpointSlice default/not-ready-1",
	},
	{
		name: "zones",
		change: func(_ *corev1.Service, e *discoveryv1.EndpointSlice) {
			e.Endpoints[0].Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "zone-z"}}}
		},
		want: "hints are ignored: none is for this node or its zone (unknown)",
	},
	{
		name: "source-ranges", dest: "externalIP", to: externalIP + ":80", args: []string{"--from", lab.ClientIP4},
		change: func(s *corev1.Service, _ *discoveryv1.EndpointSlice) {
			s.Spec.Type, s.Spec.LoadBalancerSourceRanges = corev1.ServiceTypeLoadBalancer, []string{"198.51.100.0/24"}
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: externalIP}}
		},
		want: "loadBalancerSourceRanges allow only 198.51.100.0/24. 203.0.113.9 is not among them.",
	},
	{
		name: "duplicate", to: "192.168.99.10:80", args: []string{"--from", lab.ClientIP4},
		change: func(s *corev1.Service, _ *discoveryv1.EndpointSlice) {
			s.CreationTimestamp, s.Spec.ExternalIPs = metav1.Now(), []string{"192.168.99.10"} // web's
		},
		want: "Service default/duplicate, port \"http\", claims the same address and port, but default/web is older: it gets no connections here.",
	},
	{
		name: "local", dest: "clusterIP",
		change: func(s *corev1.Service, e *discoveryv1.EndpointSlice) {
			s.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
			e.Endpoints[0].NodeName = new("node-2")
		},
		want: "dropped: the policy is Local, and no endpoint on this node can answer",
	},
	{
		name: "label", dest: "clusterIP",
		change: func(s *corev1.Service, e *discoveryv1.EndpointSlice) {
			s.Spec.Selector, e.Labels = nil, nil
		},
		want: "EndpointSlice default/label-1 lacks the label kubernetes.io/service-name=label: it belongs to no Service.",
	},
	{
		name: "other-proxy", dest: "clusterIP",
		change: func(s *corev1.Service, _ *discoveryv1.EndpointSlice) {
			s.Labels = map[string]string{model.LabelServiceProxyName: "mesh"}
		},
		want: "which the label service.kubernetes.io/service-proxy-name=mesh assigns to another proxy.",
	},
	{
		name: "ipv6", args: []string{"-6"}, change: func(*corev1.Service, *discoveryv1.EndpointSlice) {},
		want: "vmapd: the node and Service default/ipv6 172.30.1.10 have no IPv6 in common",
	},
}

func TestBreakagesOfServices(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	for i, b := range serviceBreakages {
		s, slice := b.objects(i)
		p.API.Set(s)
		p.API.Set(slice)
	}
	p.startReady(t)
	p.Ask(t, vmapdtest.WebVIP)
	for i, b := range serviceBreakages {
		t.Run(b.name, func(t *testing.T) {
			switch b.dest {
			case "clusterIP":
				p.wantSilence(t, p.Client, netip.AddrPortFrom(serviceIP(i), 80))
			case "externalIP":
				p.wantSilence(t, p.Client, netip.AddrPortFrom(netip.MustParseAddr(externalIP), 80))
			}
			args := b.args
			if len(args) == 0 || args[0] != "trace" {
				args = append([]string{"explain"}, args...)
			}
			args = append(slices.Clone(args), cmp.Or(b.to, "svc/"+b.name))
			if !strings.Contains(strings.Join(b.args, " "), "--from") {
				args = append(args, "--from", "node")
			}
			output, exit := p.vmapd(t, args...)
			if !strings.Contains(output, b.want) {
				t.Errorf("vmapd %s does not say %q:\n%s", strings.Join(args, " "), b.want, output)
			}
			if want := map[bool]int{true: 1}[strings.HasPrefix(b.want, "vmapd: ")]; exit != want {
				t.Errorf("exit code %d, want %d", exit, want)
			}
			if strings.Contains(output, "kernel differs") {
				t.Errorf("the kernel has another decision:\n%s", output)
			}
		})
	}
}
