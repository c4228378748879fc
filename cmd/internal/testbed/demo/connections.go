package main

import (
	"context"
	"fmt"
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

// route is a way to a Service.
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

// networks are the protocols and families of each route.
func networks() []string { return []string{"tcp4", "tcp6", "udp4", "udp6"} }

func (r route) addr(network string) netip.AddrPort {
	ip := r.ip4
	if strings.HasSuffix(network, "6") {
		ip = r.ip6
	}
	return netip.AddrPortFrom(netip.MustParseAddr(ip), r.port)
}

func (d *demo) namespace(name string) (*lab.Namespace, error) {
	switch name {
	case "client":
		return d.world.Client, nil
	case "node":
		return d.world.Node, nil
	}
	pod, err := d.world.Pod(name)
	if err != nil {
		return nil, err
	}
	return pod.Namespace, nil
}

// connections connects on all routes to the Service, and prints which pods answered.
func (d *demo) connections(ctx context.Context) error {
	d.printf("Pods that answer %d connections on each route:\n\n", perRoute)
	d.printf("  %-31s %6s %6s %6s %7s   %s\n", "", "pod-1", "pod-2", "pod-3", "failed", "the pods see")
	for _, r := range routes() {
		d.printf("  %s to %s\n", r.from, r.name)
		for _, network := range networks() {
			if err := d.ask(ctx, r, network); err != nil {
				return err
			}
		}
	}
	return nil
}

// ask connects on one route, and prints a line.
func (d *demo) ask(ctx context.Context, r route, network string) error {
	ns, err := d.namespace(r.from)
	if err != nil {
		return err
	}
	answered, sources, failed := map[string]int{}, map[string]bool{}, 0
	var first error
	for range perRoute {
		answer, err := ns.Ask(ctx, network, r.addr(network))
		d.asked++
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			failed++
			first = err
			continue
		}
		answered[answer.Pod]++
		// A pod that reaches itself must see the node as the source, or its reply would not
		// come back through the node.
		if answer.Pod != r.from {
			sources[d.nameOf(answer.Source.Addr())] = true
		}
	}
	seen := strings.Join(slices.Sorted(maps.Keys(sources)), ", ")
	want := "the node"
	if r.source {
		want = "the source"
		if seen == r.from {
			seen = want
		}
	}
	d.printf("    %-29s %6d %6d %6d %7d   %s\n",
		fmt.Sprintf("%v/%s", r.addr(network), network[:3]),
		answered["pod-1"], answered["pod-2"], answered["pod-3"], failed, seen)
	d.wrong += failed
	if first != nil {
		d.printf("      first failure: %v\n", first)
	}
	for _, pod := range []string{"pod-1", "pod-2", "pod-3"} {
		if answered[pod] == 0 {
			d.complain("%s got none of %d connections", pod, perRoute)
		}
	}
	if seen != want {
		d.complain("the pods should see %s, but see %s", want, seen)
	}
	return nil
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
	d.printf("\nRejected at once:\n\n")
	for _, r := range []route{
		{from: "client", name: "a Service without endpoints", ip4: "172.30.0.11", ip6: "fd00:172:30::11", port: servicePort},
		{from: "pod-1", name: "a port that the Service does not have", ip4: clusterIP4, ip6: clusterIP6, port: 81},
	} {
		for _, network := range networks()[:2] {
			ns, err := d.namespace(r.from)
			if err != nil {
				return err
			}
			_, err = ns.Ask(ctx, network, r.addr(network))
			d.asked++
			if ctx.Err() != nil {
				return ctx.Err()
			}
			d.printf("  %-7s %-38s %v/%s\n", r.from, r.name, r.addr(network), network[:3])
			if err == nil || lab.FailureOf(err) != lab.Refused {
				d.complain("want a refused connection, got: %v", err)
			}
		}
	}
	return nil
}
