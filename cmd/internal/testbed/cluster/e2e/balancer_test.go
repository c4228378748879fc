package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// bench is a balancer of one Service and two nodes, whose health-check ports answer for those in healthy.
type bench struct {
	*Balancer
	service corev1.Service
	route   string // the last one
	healthy []string
}

func newBench() *bench {
	b := &bench{service: corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "ns"}}}
	b.Balancer = &Balancer{
		Log: slog.New(slog.DiscardHandler), Client: "203.0.113.10",
		Nodes: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")},
		Kubectl: func(_ context.Context, args ...string) (string, error) {
			if args[0] == "get" {
				data, err := json.Marshal(corev1.ServiceList{Items: []corev1.Service{b.service}})
				return string(data), err
			}
			patch, ok := strings.CutPrefix(strings.Join(args, " "), "-n ns patch service s --subresource=status -p ")
			if !ok {
				return "", errors.New(strings.Join(args, " "))
			}
			return "", json.Unmarshal([]byte(patch), &b.service)
		},
		Run: func(_ context.Context, args ...string) (string, error) {
			if args[0] == "curl" && !slices.ContainsFunc(b.healthy, func(n string) bool { return slices.Contains(args, "http://"+n+":30000/") }) {
				return "", errors.New("no answer")
			}
			if args[0] == "ip" {
				b.route = strings.Join(args, " ")
			}
			return "", nil
		},
	}
	return b
}

func TestBalancer(t *testing.T) {
	b := newBench()
	spec := &b.service.Spec
	for _, step := range []struct {
		name           string
		change         func()
		address, route string
	}{
		{"no load balancer", func() {}, "", ""},
		{
			"all nodes", func() { spec.Type = corev1.ServiceTypeLoadBalancer },
			"198.51.100.1", "198.51.100.1 src 203.0.113.10 nexthop via 192.0.2.1 nexthop via 192.0.2.2",
		},
		{
			"one node for a client that returns", func() { spec.SessionAffinity = corev1.ServiceAffinityClientIP },
			"198.51.100.1", "198.51.100.1 src 203.0.113.10 nexthop via 192.0.2.1",
		},
		{
			"nodes with endpoints", func() { b.healthy, spec.HealthCheckNodePort = []string{"192.0.2.2"}, 30000 },
			"198.51.100.1", "198.51.100.1 src 203.0.113.10 nexthop via 192.0.2.2",
		},
		{"no node with endpoints", func() { b.healthy = nil }, "198.51.100.1", "blackhole 198.51.100.1"},
		{"no load balancer any more", func() { spec.Type = corev1.ServiceTypeClusterIP }, "", ""},
		{
			"an address of another", func() {
				spec.Type, b.service.Status.LoadBalancer.Ingress = corev1.ServiceTypeLoadBalancer, []corev1.LoadBalancerIngress{{IP: "203.0.113.1"}}
			},
			"203.0.113.1", "",
		},
	} {
		step.change()
		b.route = ""
		if err := b.round(t.Context()); err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
		var got string
		for _, in := range b.service.Status.LoadBalancer.Ingress {
			got += in.IP
		}
		if got != step.address {
			t.Errorf("%s: the Service has the address %q, want %q", step.name, got, step.address)
		}
		if diff := cmp.Diff(step.route, strings.TrimPrefix(b.route, "ip route replace ")); diff != "" {
			t.Errorf("%s: %s", step.name, diff)
		}
	}
}
