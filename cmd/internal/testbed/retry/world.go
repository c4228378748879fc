package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"

	"github.com/vmapd/vmapd/cmd/internal/testbed/bench"
	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

// Kinds of Services.
const (
	plain    = "plain"
	affinity = "session affinity"
	maglev   = "Maglev"
	local    = "externalTrafficPolicy Local"
)

const (
	port     = 80
	podPort  = 8080
	nodePort = 30080
)

// client is a machine with many addresses that connects to one address of the Service.
type client struct {
	name    string
	from    *lab.Namespace
	sources []netip.Addr
	to      netip.AddrPort
	next    atomic.Int64
}

// ask makes one connection, from the client's addresses in turn.
func (c *client) ask(ctx context.Context) (lab.Answer, error) {
	source := c.sources[int(c.next.Add(1))%len(c.sources)]
	return c.from.AskFrom(ctx, source, "tcp", c.to)
}

// world has the Service web, with the first pods as endpoints. One more pod is a client. With the policy Local, another
// one is an endpoint on another Node.
type world struct {
	*bench.World
	r       *run
	clients []*client
}

func newWorld(ctx context.Context, kubeProxy string, r *run) (w *world, err error) {
	w = &world{r: r}
	if w.World, err = bench.NewWorld(ctx, r.endpoints+2, podPort); err != nil {
		return nil, err
	}
	if err := w.build(ctx, kubeProxy); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// build makes clients and objects, and starts the proxy.
func (w *world) build(ctx context.Context, path string) error {
	if err := w.addClients(); err != nil {
		return err
	}
	w.setObjects()
	flags := w.Flags(lab.NodeName, lab.PodRange4+","+lab.PodRange6)
	if w.r.proxy == withoutRetry {
		flags = append(flags, "--connection-retry=false")
	}
	if w.r.proxy != kubeProxy {
		path = ""
	}
	return w.StartEither(ctx, "bin/vmapd", path, flags...)
}

// Where the Service is reached, by family.
func clusterIPs() [2]string    { return [2]string{"172.30.0.10", "fd00:172:30::10"} }
func loadBalancers() [2]string { return [2]string{"192.168.98.10", "fd00:192:168:98::10"} }

// addClients makes the clients, with their addresses.
func (w *world) addClients() error {
	pod := w.pod(w.r.endpoints)
	addToPod := func(a netip.Addr) error { return w.AddPodAddr(pod, a) }
	addToNode := func(a netip.Addr) error { return w.Node.AddAlias(lab.UplinkName, a) }
	const outside = "outside, "
	for _, place := range []struct {
		name      string
		from      *lab.Namespace
		add       func(netip.Addr) error
		first, to [2]string // the first of its addresses, and the Service's, by family
		port      uint16
	}{
		{"pod", pod.Namespace, addToPod, [2]string{"10.200.0.1", "fd00:10::c:1"}, clusterIPs(), port},
		{"node", w.Node, addToNode, [2]string{"192.168.0.10", "fd00:192:168::a:1"}, clusterIPs(), port},
		{
			outside + "node port", w.Client, w.AddClientAddr,
			[2]string{"203.0.113.20", "2001:db8:203::a:1"},
			[2]string{lab.NodeIP4, lab.NodeIP6},
			nodePort,
		},
		{
			outside + "load balancer", w.Client, w.AddClientAddr,
			[2]string{"203.0.113.130", "2001:db8:203::b:1"},
			loadBalancers(), port,
		},
	} {
		if w.r.kind == local && place.from != w.Client {
			continue // the policy is for connections from outside
		}
		for f, family := range [...]string{"IPv4", "IPv6"} {
			c := &client{name: place.name + ", " + family, from: place.from}
			c.to = netip.AddrPortFrom(netip.MustParseAddr(place.to[f]), place.port)
			a := netip.MustParseAddr(place.first[f])
			for range addresses {
				if err := place.add(a); err != nil {
					return err
				}
				c.sources = append(c.sources, a)
				a = a.Next()
			}
			w.clients = append(w.clients, c)
		}
	}
	return nil
}

// setObjects writes the Node, the Service and its EndpointSlices to the API server.
func (w *world) setObjects() {
	ips := clusterIPs()
	s := bench.Service("web", port, podPort, []corev1.Protocol{corev1.ProtocolTCP},
		netip.MustParseAddr(ips[0]), netip.MustParseAddr(ips[1]))
	s.Spec.Type, s.Spec.Ports[0].NodePort, s.Annotations = corev1.ServiceTypeLoadBalancer, nodePort, map[string]string{}
	for _, ip := range loadBalancers() {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
	}
	pods := w.Pods()[:w.r.endpoints]
	switch w.r.kind {
	case affinity:
		s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		const hours = 3 * 60 * 60 // seconds, which the API server would fill in
		s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
			ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(hours))},
		}
	case maglev:
		s.Annotations["vmapd.io/lb-algorithm"] = "maglev"
	case local:
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		const healthPort = 30081
		s.Spec.HealthCheckNodePort = healthPort
		pods = append(slices.Clone(pods), w.pod(w.r.endpoints+1))
	}
	w.API.Set(s)
	for _, slice := range bench.Slices(s, pods...) {
		if w.r.kind == local {
			slice.Endpoints[w.r.endpoints].NodeName = new("node-2")
		}
		w.API.Set(slice)
	}
}

// settle waits until each client is answered.
func (w *world) settle(ctx context.Context) error {
	for _, c := range w.clients {
		if err := bench.Answered(ctx, c.ask); err != nil {
			return fmt.Errorf("%s is not answered: %w", c.name, err)
		}
	}
	return nil
}

// silence has the first endpoint drop all packets.
func (w *world) silence(ctx context.Context) error {
	const rules = `table inet fault {
	chain in { type filter hook prerouting priority -400; policy drop; }
	chain out { type filter hook output priority -400; policy drop; }
}`
	if out, err := w.pod(0).Command(ctx, "nft", rules).CombinedOutput(); err != nil {
		return fmt.Errorf("nft %s: %w\n%s", rules, err, out)
	}
	return nil
}

// load has all clients connect.
func (w *world) load(ctx context.Context) []lab.Report {
	ctx, cancel := context.WithTimeout(ctx, lasts)
	defer cancel()
	reports := make([]lab.Report, len(w.clients))
	var wait sync.WaitGroup
	for i, c := range w.clients {
		wait.Go(func() { reports[i] = lab.Load{Rate: rate, Timeout: within, Ask: c.ask}.Run(ctx) })
	}
	wait.Wait()
	return reports
}

// pod is one of the endpoints, from 0 on.
func (w *world) pod(n int) *lab.Pod { return w.Pods()[n] }
