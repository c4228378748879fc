package cluster

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"path"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/sync/events"
)

// What a hostile Service may cost: the memory and the log of the process. A change of another Service arrives within a
// minute; without budgets, it takes longer with each part of the hostile one. The Go runtime has a limit of its own:
// without it, the process takes up to twice the memory that it needs. A process that needs more exceeds it.
const (
	maxMemory = 100 << 20
	maxHeap   = maxMemory * 9 / 10
	maxLog    = 100_000 // bytes, of the start and the rounds
)

// hostileCase is a Service that multiplies something.
type hostileCase struct {
	name   string
	budget string // that it exceeds
	tools  hostileTools
}

func hostileCases() []hostileCase {
	return []hostileCase{
		{"elements", "entries", hostileTools{addresses: 5_000, ports: 1, endpoints: 1_000}},
		{"problems", "problems", hostileTools{addresses: 5_000, ports: 10, endpoints: 1, twin: true}},
		{"source-ranges", "entries", hostileTools{ingresses: 1, ports: 3, endpoints: 1, ranges: 20_000}},
		{"source-ranges-within", "", hostileTools{ingresses: 1, ports: 1, endpoints: 1, ranges: 4_000}},
		{"ports-endpoints", "entries", hostileTools{ports: 5_000, endpoints: 20_000}},
		{"slices", "entries", hostileTools{ports: 100, endpoints: 3_000, perSlice: 1}},
		{"endpoints", "endpoints", hostileTools{ports: 1, endpoints: 50_000}},
		{"affinity", "ports", hostileTools{ports: 5_000, endpoints: 2, affinity: true}},
		{"annotation", "", hostileTools{ports: 1, endpoints: 1, annotation: 250_000}},
	}
}

// A hostile Service must cost others neither time nor memory, whatever it multiplies: while it is made, while it
// changes, and while it is deleted. With iptables, the kernel takes all rules anew for a change, and the default
// budgets are lower.
func TestAHostileServiceCostsOthersLittle(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: takes a minute")
	}
	for _, backend := range []string{"nftables", "iptables"} {
		for _, tt := range hostileCases() {
			t.Run(backend+"/"+tt.name, func(t *testing.T) { tt.run(t, backend) })
		}
	}
}

func (tt hostileCase) run(t *testing.T, backend string) {
	t.Helper()
	t.Setenv("GOMEMLIMIT", strconv.Itoa(maxHeap))
	c := vmapdtest.NewCluster(t)
	c.API.Set(vmapdtest.OurNode())
	p := c.StartReady(t, "--backend", backend, "--oom-score-adj", "0")
	v := victim{Cluster: c, Process: p}
	v.change(t)
	before := v.peak(t)
	h := tt.tools.service()
	for range 3 {
		for _, s := range h.objects() {
			c.API.Set(s)
		}
		v.change(t)
		if tt.budget != "" {
			v.wantOverBudget(t, tt.budget)
		}
		for range 3 {
			h.touch()
			c.API.Set(h.service)
			c.API.Set(h.slices[0])
			v.change(t)
		}
		for _, s := range h.objects() {
			c.API.Delete(s)
		}
		v.change(t)
	}
	if got := v.peak(t) - before; got > maxMemory {
		t.Errorf("it costs %d MB of memory, want less than %d", got>>20, maxMemory>>20)
	}
	if got := len(p.Log.String()); got > maxLog {
		t.Errorf("it makes %d bytes of log, want less than %d", got, maxLog)
	}
}

// victim is a Service in a cluster with a hostile one.
type victim struct {
	*vmapdtest.Cluster
	*vmapdtest.Process
	changes int
}

// change gives the Service another port and moves it to another pod, and waits until the pod answers there. By then,
// all changes before have been programmed: the daemon watches Services and slices one by one, each in its order.
func (v *victim) change(t *testing.T) {
	t.Helper()
	v.changes++
	pod, vip := byte(2+v.changes%2), netip.AddrPortFrom(netip.MustParseAddr("172.30.0.77"), uint16(1000+v.changes))
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "victim"},
		Spec: corev1.ServiceSpec{
			ClusterIP: vip.Addr().String(), ClusterIPs: []string{vip.Addr().String()},
			Ports: []corev1.ServicePort{{Name: "tcp", Protocol: corev1.ProtocolTCP, Port: int32(vip.Port())}},
		},
	}
	slice := vmapdtest.WebSlice(pod)
	slice.Name, slice.Labels = "victim", map[string]string{discoveryv1.LabelServiceName: "victim"}
	want := fmt.Sprintf("pod-%d", pod-1)
	v.API.Set(service)
	v.API.Set(slice)
	vmapdtest.WaitUntil(t, "another Service's change", func() bool { return v.ask(t, vip) == want })
}

// ask returns the pod that answers a new connection, or "". A packet that is lost between two changes of
// iptables would be sent again after a second: another connection tells earlier.
func (v *victim) ask(t *testing.T, vip netip.AddrPort) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	a, err := v.Client.Ask(ctx, "tcp", vip)
	if err != nil {
		return ""
	}
	return a.Pod
}

// wantOverBudget checks that the hostile Service shows in the metrics and has an event.
func (v *victim) wantOverBudget(t *testing.T, budget string) {
	t.Helper()
	v.WantEvent(t, events.ReasonOverBudget, "Service", "hostile", "more")
	vmapdtest.Eventually(t, func() string {
		if got, _ := vmapdtest.Value(v.Scrape(t), "vmapd_objects_over_budget", "budget="+budget); got < 1 {
			return fmt.Sprintf("%v objects over the budget %s, want one at least", got, budget)
		}
		return ""
	})
}

// peak reads the peak of the memory of the process, in bytes.
func (v *victim) peak(t *testing.T) int {
	t.Helper()
	text := testaid.Read(t, path.Join("/proc", v.Pid(), "status"))
	_, peak, _ := strings.Cut(text, "VmHWM:")
	n, err := strconv.Atoi(strings.Fields(peak)[0])
	if err != nil {
		t.Fatal(err)
	}
	return n << 10
}

// hostileTools are the numbers of the parts of a hostile Service.
type hostileTools struct {
	addresses, ingresses, ports, endpoints, ranges int

	perSlice int // endpoints of a slice; 0: as many as the API allows

	twin       bool // an older Service has the same addresses
	affinity   bool
	annotation int // length of the annotation's value
}

// hostileService is a hostile Service with its slices.
type hostileService struct {
	hostileTools
	service *corev1.Service
	twin    *corev1.Service
	slices  []*discoveryv1.EndpointSlice
	version int
}

func (h *hostileService) objects() []runtime.Object {
	list := []runtime.Object{h.service}
	for _, s := range h.slices {
		list = append(list, s)
	}
	if h.twin != nil {
		list = append(list, h.twin)
	}
	return list
}

// touch changes the Service and its first endpoint.
func (h *hostileService) touch() {
	h.version++
	h.service = h.service.DeepCopy()
	switch {
	case h.annotation > 0:
		h.service.Annotations = map[string]string{model.AnnotationAlgorithm: strings.Repeat("a", h.annotation+h.version)}
	case h.affinity:
		h.service.Spec.SessionAffinity = []corev1.ServiceAffinity{
			corev1.ServiceAffinityClientIP, corev1.ServiceAffinityClientIP, corev1.ServiceAffinityNone,
		}[h.version%3]
	default: // it changes every verdict but that of the cluster IP
		h.service.Spec.ExternalTrafficPolicy = []corev1.ServiceExternalTrafficPolicy{
			corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal,
		}[h.version%2]
	}
	h.slices[0] = h.slices[0].DeepCopy()
	h.slices[0].Endpoints[0].Addresses = []string{fmt.Sprintf("10.200.0.%d", h.version%250+1)}
}

func (o hostileTools) service() *hostileService {
	address := func(net byte, i int) string {
		return netip.AddrFrom4([4]byte{net, byte(i >> 16), byte(i >> 8), byte(i)}).String()
	}
	h := &hostileService{hostileTools: o, service: &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "hostile", CreationTimestamp: metav1.Unix(2e9, 0)},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "172.30.9.9",
			ClusterIPs: []string{"172.30.9.9"},
		},
	}}
	spec := &h.service.Spec
	for i := range o.addresses {
		spec.ExternalIPs = append(spec.ExternalIPs, address(20, i+1))
	}
	for i := range o.ingresses {
		h.service.Status.LoadBalancer.Ingress = append(h.service.Status.LoadBalancer.Ingress,
			corev1.LoadBalancerIngress{IP: address(30, i+1)})
	}
	for i := range o.ranges {
		spec.LoadBalancerSourceRanges = append(spec.LoadBalancerSourceRanges, address(40, 2*i+2)+"/32")
	}
	if o.annotation > 0 {
		h.service.Annotations = map[string]string{model.AnnotationAlgorithm: strings.Repeat("a", o.annotation)}
	}
	if o.affinity {
		spec.SessionAffinity = corev1.ServiceAffinityClientIP
	}
	var ports []discoveryv1.EndpointPort
	for i := range o.ports {
		name := fmt.Sprintf("p%d", i)
		spec.Ports = append(spec.Ports, corev1.ServicePort{Name: name, Protocol: corev1.ProtocolTCP, Port: int32(i + 1)})
		ports = append(ports, discoveryv1.EndpointPort{
			Name: &name, Protocol: new(corev1.ProtocolTCP),
			Port: new(int32(i + 1)),
		})
	}
	perSlice := cmp.Or(o.perSlice, 1_000) // the API's maximum
	for first := 0; first < o.endpoints; first += perSlice {
		s := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "tenant", Name: fmt.Sprintf("hostile-%d", first),
				Labels: map[string]string{discoveryv1.LabelServiceName: "hostile"},
			},
			AddressType: discoveryv1.AddressTypeIPv4, Ports: ports,
		}
		for i := range min(perSlice, o.endpoints-first) {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{address(10, 1<<20+first+i)}, NodeName: new(lab.NodeName),
				Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
			})
		}
		h.slices = append(h.slices, s)
	}
	if o.twin {
		h.twin = h.service.DeepCopy()
		h.twin.Name, h.twin.CreationTimestamp = "first", metav1.Unix(1e9, 0)
		h.twin.Spec.ClusterIP, h.twin.Spec.ClusterIPs = "172.30.9.8", []string{"172.30.9.8"}
	}
	return h
}
