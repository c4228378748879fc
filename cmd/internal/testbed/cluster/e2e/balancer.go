package e2e

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// cleanUp is the finalizer of Services with a load balancer
// (https://kubernetes.io/docs/tasks/access-application-cluster/create-external-load-balancer/).
const cleanUp = "service.kubernetes.io/load-balancer-cleanup"

// Balancer stands for the load balancers of a cloud. It gives each Service of type LoadBalancer an
// address by its status, and leads packets to that address to nodes, unchanged: to all of them, or
// to those whose health-check node port says that they have endpoints.
type Balancer struct {
	Client kubernetes.Interface
	Log    *slog.Logger

	// Dial makes a connection to a node.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// Route leads packets to an address to these nodes. It is called again only for other nodes.
	Route func(ctx context.Context, address netip.Addr, nodes []netip.Addr) error

	routes map[netip.Addr][]netip.Addr
}

// balanced is the range of the addresses.
var balanced = netip.MustParsePrefix("198.51.100.0/24") //nolint:gochecknoglobals // a constant

// Run does that until ctx ends. Errors are logged, and the step is tried again.
func (b *Balancer) Run(ctx context.Context) {
	const pause = 300 * time.Millisecond
	b.routes = map[netip.Addr][]netip.Addr{}
	for ticks := time.NewTicker(pause); ; {
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
	services, err := b.Client.CoreV1().Services("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	nodes, err := b.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var all []netip.Addr
	for _, n := range nodes.Items {
		for _, a := range n.Status.Addresses {
			if ip, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP && ip.Is4() {
				all = append(all, ip)
			}
		}
	}
	used := map[netip.Addr]bool{}
	for i := range services.Items {
		used[address(&services.Items[i])] = true
	}
	for i := range services.Items {
		s := &services.Items[i]
		if s.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Spec.LoadBalancerClass == nil && s.DeletionTimestamp == nil {
			err = errors.Join(err, b.serve(ctx, s, all, used))
		} else if slices.Contains(s.Finalizers, cleanUp) {
			err = errors.Join(err, b.release(ctx, s))
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

// free returns an address that no Service has.
func free(used map[netip.Addr]bool) (netip.Addr, error) {
	for a := balanced.Addr().Next(); balanced.Contains(a); a = a.Next() {
		if !used[a] {
			used[a] = true
			return a, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("all addresses of %v are in use", balanced)
}

// serve takes the steps that a Service lacks.
func (b *Balancer) serve(ctx context.Context, s *corev1.Service, nodes []netip.Addr, used map[netip.Addr]bool) (err error) {
	of := b.Client.CoreV1().Services(s.Namespace)
	if !slices.Contains(s.Finalizers, cleanUp) {
		s.Finalizers = append(s.Finalizers, cleanUp)
		if s, err = of.Update(ctx, s, metav1.UpdateOptions{}); err != nil {
			return ignorable(err)
		}
	}
	a := address(s)
	isNew := !a.IsValid()
	if isNew {
		if len(s.Status.LoadBalancer.Ingress) > 0 {
			return nil // another one has it, such as a test that writes the status itself
		}
		if a, err = free(used); err != nil {
			return err
		}
	}
	if err := b.lead(ctx, s, a, nodes); err != nil || !isNew {
		return err
	}
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: a.String()}}
	_, err = of.UpdateStatus(ctx, s, metav1.UpdateOptions{})
	return ignorable(err)
}

// lead leads packets to an address to the nodes that may take it.
func (b *Balancer) lead(ctx context.Context, s *corev1.Service, a netip.Addr, nodes []netip.Addr) error {
	if port := s.Spec.HealthCheckNodePort; port != 0 {
		nodes = slices.DeleteFunc(slices.Clone(nodes), func(n netip.Addr) bool { return !b.healthy(ctx, n, port) })
	}
	if s.Spec.SessionAffinity == corev1.ServiceAffinityClientIP && len(nodes) > 1 {
		nodes = nodes[:1] // each node remembers clients for itself, and there is one client
	}
	if have, ok := b.routes[a]; ok && slices.Equal(have, nodes) {
		return nil
	}
	if err := b.Route(ctx, a, nodes); err != nil {
		return err
	}
	b.routes[a] = nodes
	return nil
}

func (b *Balancer) healthy(ctx context.Context, node netip.Addr, port int32) bool {
	const limit = time.Second
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%v:%d/", node, port), nil)
	if err != nil {
		return false
	}
	client := http.Client{Transport: &http.Transport{DialContext: b.Dial, DisableKeepAlives: true}}
	resp, err := client.Do(req)
	return err == nil && resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
}

// release takes the address from a Service that is to have none any more.
func (b *Balancer) release(ctx context.Context, s *corev1.Service) (err error) {
	of := b.Client.CoreV1().Services(s.Namespace)
	if a := address(s); a.IsValid() {
		if err := b.Route(ctx, a, nil); err != nil {
			return err
		}
		delete(b.routes, a)
	}
	if len(s.Status.LoadBalancer.Ingress) > 0 {
		s.Status.LoadBalancer = corev1.LoadBalancerStatus{}
		if s, err = of.UpdateStatus(ctx, s, metav1.UpdateOptions{}); err != nil {
			return ignorable(err)
		}
	}
	s.Finalizers = slices.DeleteFunc(s.Finalizers, func(f string) bool { return f == cleanUp })
	_, err = of.Update(ctx, s, metav1.UpdateOptions{})
	return ignorable(err)
}

// ignorable drops errors about a Service that was changed or deleted at the same time: the next
// round sees it.
func ignorable(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
