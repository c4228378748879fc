package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Balancer stands for the load balancers of a cloud. It gives each Service of type LoadBalancer an
// address by its status, and leads packets to that address to nodes, unchanged: to all of them, or
// to those that report endpoints at the health-check node port.
type Balancer struct {
	Log   *slog.Logger
	Nodes []netip.Addr

	// Client is the source of packets to load balancers.
	Client string

	// Run runs a program where the tests do, and returns what it prints. Kubectl does that with kubectl.
	Run, Kubectl func(ctx context.Context, args ...string) (string, error)
}

// balanced is the range of the addresses.
var balanced = netip.MustParsePrefix("198.51.100.0/24") //nolint:gochecknoglobals // a constant

// Balance does that until ctx ends. Errors are logged, and the step is tried again.
func (b *Balancer) Balance(ctx context.Context) {
	for ticks := time.NewTicker(time.Second); ; {
		if err := b.round(ctx); err != nil && ctx.Err() == nil {
			b.Log.Warn("load balancers are late", slog.Any("err", err))
		}
		select {
		case <-ctx.Done():
			ticks.Stop()
			return
		case <-ticks.C:
		}
	}
}

func (b *Balancer) round(ctx context.Context) error {
	out, err := b.Kubectl(ctx, "get", "--raw", "/api/v1/services")
	if err != nil {
		return err
	}
	var services corev1.ServiceList
	if err := json.Unmarshal([]byte(out), &services); err != nil {
		return fmt.Errorf("read the Services: %w", err)
	}
	used := map[netip.Addr]bool{}
	for i := range services.Items {
		used[address(&services.Items[i])] = true
	}
	for i := range services.Items {
		s := &services.Items[i]
		a := address(s)
		switch isBalanced := s.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Spec.LoadBalancerClass == nil; {
		case !isBalanced && a.IsValid():
			err = errors.Join(err, b.publish(ctx, s, "null"))
		case isBalanced && a.IsValid():
			err = errors.Join(err, b.lead(ctx, s, a))
		case isBalanced && len(s.Status.LoadBalancer.Ingress) == 0: // else a test has written the status itself
			for a = balanced.Addr().Next(); used[a]; {
				a = a.Next()
			}
			used[a] = true
			err = errors.Join(err, b.lead(ctx, s, a), b.publish(ctx, s, fmt.Sprintf(`[{"ip":"%v"}]`, a)))
		}
	}
	return err
}

// address is the one in the status of a Service, if it is from the range.
func address(s *corev1.Service) netip.Addr {
	for _, in := range s.Status.LoadBalancer.Ingress {
		if a, err := netip.ParseAddr(in.IP); err == nil && balanced.Contains(a) {
			return a
		}
	}
	return netip.Addr{}
}

// publish writes the addresses of a Service's load balancer into its status.
func (b *Balancer) publish(ctx context.Context, s *corev1.Service, ingress string) error {
	patch := `{"status":{"loadBalancer":{"ingress":` + ingress + `}}}`
	_, err := b.Kubectl(ctx, "-n", s.Namespace, "patch", "service", s.Name, "--subresource=status", "-p", patch)
	return err
}

// lead leads packets to an address to the nodes that may take it, or nowhere.
func (b *Balancer) lead(ctx context.Context, s *corev1.Service, a netip.Addr) error {
	nodes := slices.Clone(b.Nodes)
	if port := s.Spec.HealthCheckNodePort; port != 0 {
		nodes = slices.DeleteFunc(nodes, func(n netip.Addr) bool {
			_, err := b.Run(ctx, "curl", "--silent", "--fail", "--max-time", "1", fmt.Sprintf("http://%v:%d/", n, port))
			return err != nil
		})
	}
	if s.Spec.SessionAffinity == corev1.ServiceAffinityClientIP && len(nodes) > 1 {
		nodes = nodes[:1] // each node remembers clients for itself, and there is one client
	}
	route := []string{"ip", "route", "replace", a.String(), "src", b.Client}
	for _, n := range nodes {
		route = append(route, "nexthop", "via", n.String())
	}
	if len(nodes) == 0 {
		route = []string{"ip", "route", "replace", "blackhole", a.String()}
	}
	_, err := b.Run(ctx, route...)
	return err
}
