package main

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

// perRoute is the number of connections on each route. With three pods, the probability that
// one of them gets none is one in a hundred million.
const perRoute = 48

// The Service "web" of the manifests.
const (
	clusterIP4, clusterIP6           = "172.30.0.10", "fd00:172:30::10"
	externalIP4, externalIP6         = "192.168.99.10", "fd00:192:168:99::10"
	loadBalancerIP4, loadBalancerIP6 = "192.168.98.10", "fd00:192:168:98::10"
	servicePort, nodePort            = 80, 30080
)

// theSource is what the pods of a route see without masquerade.
const theSource = "the source"

// route is a path to a Service.
type route struct {
	from     string // client, node or a pod
	name     string // of the destination
	ip4, ip6 string
	port     uint16
	source   bool // the pods see the original source address
}

func routes() []route {
	return []route{
		{"client", "cluster IP", clusterIP4, clusterIP6, servicePort, false},
		{"client", "node port", lab.NodeIP4, lab.NodeIP6, nodePort, false},
		{"client", "external IP", externalIP4, externalIP6, servicePort, false},
		{"client", "load balancer", loadBalancerIP4, loadBalancerIP6, servicePort, false},
		{"pod-2", "cluster IP", clusterIP4, clusterIP6, servicePort, true},
		{"node", "cluster IP", clusterIP4, clusterIP6, servicePort, false},
	}
}

// networks are the protocols and families of each route. The rows of the table are about the first.
func networks() []string { return []string{"tcp4", "tcp6", "udp4", "udp6"} }

func (r route) addr(network string) netip.AddrPort {
	ip := r.ip4
	if strings.HasSuffix(network, "6") {
		ip = r.ip6
	}
	return netip.AddrPortFrom(netip.MustParseAddr(ip), r.port)
}

// connections connects on all routes to the Service, and prints which pods answered over IPv4 and TCP.
func (d *demo) connections(ctx context.Context) error {
	d.printf("%d connections on each path, by the pod that answered:\n\n", perRoute)
	d.printf("  %-31s %6s %6s %6s %7s   %s\n", "", "pod-1", "pod-2", "pod-3", "failed", "the pods see")
	failed, asked := 0, 0
	for _, r := range routes() {
		for i, network := range networks() {
			a, err := d.ask(ctx, r, network)
			if err != nil {
				return err
			}
			if i == 0 {
				d.printf("  %-31s %6d %6d %6d %7d   %s\n", r.from+" to "+r.name,
					a.by["pod-1"], a.by["pod-2"], a.by["pod-3"], a.failed, a.seen)
			} else {
				failed, asked = failed+a.failed, asked+perRoute
			}
			d.check(r, network, a)
		}
	}
	d.printf("  the same for IPv6 and UDP: %d failed of %d\n", failed, asked)
	return nil
}

// answers are those to the connections on a route.
type answers struct {
	by     map[string]int // by pod
	failed int
	first  error
	seen   string // sources of the connections, by name
}

// ask connects on one route.
func (d *demo) ask(ctx context.Context, r route, network string) (a answers, err error) {
	ns, err := d.world.Machine(r.from)
	if err != nil {
		return a, err
	}
	a.by = map[string]int{}
	sources := map[string]bool{}
	for range perRoute {
		answer, err := ns.Ask(ctx, network, r.addr(network))
		d.asked++
		if ctx.Err() != nil {
			return a, ctx.Err()
		}
		if err != nil {
			a.failed++
			a.first = err
			continue
		}
		a.by[answer.Pod]++
		// A pod that reaches itself must see the node as the source, or its reply would not
		// come back through the node.
		if answer.Pod != r.from {
			sources[d.nameOf(answer.Source.Addr())] = true
		}
	}
	a.seen = strings.Join(slices.Sorted(maps.Keys(sources)), ", ")
	if r.source && a.seen == r.from {
		a.seen = theSource
	}
	return a, nil
}

// check complains of what is wrong with answers.
func (d *demo) check(r route, network string, a answers) {
	want := "the node"
	if r.source {
		want = theSource
	}
	d.wrong += a.failed
	if a.first != nil {
		d.printf("      first failure over %s: %v\n", network, a.first)
	}
	for _, pod := range []string{"pod-1", "pod-2", "pod-3"} {
		if a.by[pod] == 0 {
			d.complain("%s got none of %d connections over %s", pod, perRoute, network)
		}
	}
	if a.seen != want {
		d.complain("over %s the pods should see %s, but see %s", network, want, a.seen)
	}
}

func (d *demo) complain(format string, args ...any) {
	d.wrong++
	d.printf("      WRONG: "+format+"\n", args...)
}

// nameOf returns the name of the host with an address.
func (d *demo) nameOf(a netip.Addr) string {
	switch a.String() {
	case lab.NodeIP4, lab.NodeIP6:
		return "the node"
	case lab.ClientIP4, lab.ClientIP6:
		return "client"
	}
	for _, pod := range d.world.Pods() {
		if pod.IP4 == a || pod.IP6 == a {
			return pod.Name()
		}
	}
	return a.String()
}

// refusals shows connections that must be rejected at once.
func (d *demo) refusals(ctx context.Context) error {
	d.printf("\nRejected at once, over IPv4 and IPv6:\n\n")
	for _, r := range []route{
		{from: "client", name: "a Service without endpoints", ip4: "172.30.0.11", ip6: "fd00:172:30::11", port: servicePort},
		{from: "pod-1", name: "a port that the Service does not have", ip4: clusterIP4, ip6: clusterIP6, port: 81},
	} {
		d.printf("  %-7s to %s\n", r.from, r.name)
		ns, err := d.world.Machine(r.from)
		if err != nil {
			return err
		}
		for _, network := range networks()[:2] {
			_, err := ns.Ask(ctx, network, r.addr(network))
			d.asked++
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err == nil || lab.FailureOf(err) != lab.Refused {
				d.complain("want a refused connection, got: %v", err)
			}
		}
	}
	return nil
}
