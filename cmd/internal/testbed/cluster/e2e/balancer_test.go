package e2e

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// bench is a balancer with two nodes, whose health-check ports answer for those in healthy.
type bench struct {
	*Balancer
	routes  map[string]string
	healthy []string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{routes: map[string]string{}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if host, _, _ := net.SplitHostPort(r.Host); !slices.Contains(b.healthy, host) {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(server.Close)
	client := fake.NewClientset()
	for _, ip := range []string{"192.0.2.1", "192.0.2.2"} {
		_, err := client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: ip},
			Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip}}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	b.Balancer = &Balancer{
		Client: client,
		Log:    slog.New(slog.DiscardHandler),
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, server.Listener.Addr().String())
		},
		Route: func(_ context.Context, a netip.Addr, nodes []netip.Addr) error {
			var names []string
			for _, n := range nodes {
				names = append(names, n.String())
			}
			b.routes[a.String()] = strings.Join(names, " ")
			return nil
		},
	}
	b.Balancer.routes = map[netip.Addr][]netip.Addr{}
	return b
}

// play changes the one Service and lets the balancer see it.
func (b *bench) play(t *testing.T, change func(*corev1.Service)) *corev1.Service {
	t.Helper()
	services := b.Client.CoreV1().Services("ns")
	s, err := services.Get(t.Context(), "s", metav1.GetOptions{})
	if err != nil {
		s, err = services.Create(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "ns"}}, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	change(s)
	if _, err := services.Update(t.Context(), s, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := b.round(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s, err = services.Get(t.Context(), "s", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestBalancer(t *testing.T) {
	b := newBench(t)
	want := func(step string, s *corev1.Service, address, nodes string) {
		t.Helper()
		var got string
		if len(s.Status.LoadBalancer.Ingress) > 0 {
			got = s.Status.LoadBalancer.Ingress[0].IP
		}
		if got != address {
			t.Errorf("%s: the Service has the address %q, want %q", step, got, address)
		}
		if finalizer := slices.Contains(s.Finalizers, cleanUp); finalizer != (address != "") {
			t.Errorf("%s: the Service has finalizers %v", step, s.Finalizers)
		}
		if diff := cmp.Diff(map[string]string{"198.51.100.1": nodes}, b.routes); diff != "" {
			t.Errorf("%s: %s", step, diff)
		}
	}
	want("all nodes", b.play(t, func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeLoadBalancer }),
		"198.51.100.1", "192.0.2.1 192.0.2.2")
	want("one node for a client that returns", b.play(t, func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP }),
		"198.51.100.1", "192.0.2.1")
	b.healthy = []string{"192.0.2.2"}
	want("nodes with endpoints", b.play(t, func(s *corev1.Service) { s.Spec.HealthCheckNodePort = 30000 }),
		"198.51.100.1", "192.0.2.2")
	b.healthy = nil
	want("no node with endpoints", b.play(t, func(*corev1.Service) {}), "198.51.100.1", "")
	want("no load balancer any more", b.play(t, func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP }), "", "")
}

func TestAnAddressOfAnotherIsKept(t *testing.T) {
	b := newBench(t)
	s := b.play(t, func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.1"}}
	})
	if got := s.Status.LoadBalancer.Ingress; len(got) != 1 || got[0].IP != "203.0.113.1" {
		t.Errorf("the Service has the addresses %v, want 203.0.113.1", got)
	}
	if len(b.routes) != 0 {
		t.Errorf("routes %v, want none", b.routes)
	}
}
