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

// route is a path to the Service web of the manifests, or to an address that must refuse.
type route struct {
	from     string // client, node or a pod
	name     string // of the destination
	ip4, ip6 string
	port     uint16
	source   bool // the pods see the original source address
}

// Addresses of the Service.
const (
	clusterIP4, clusterIP6           = "172.30.0.10", "fd00:172:30::10"
	loadBalancerIP4, loadBalancerIP6 = "192.168.98.10", "fd00:192:168:98::10"
	servicePort, nodePort            = 80, 30080
)

func routes() []route {
	return []route{
		{"client", "cluster IP", clusterIP4, clusterIP6, servicePort, false},
		{"client", "node port", lab.NodeIP4, lab.NodeIP6, nodePort, false},
		{"client", "external IP", "192.168.99.10", "fd00:192:168:99::10", servicePort, false},
		{"client", "load balancer", loadBalancerIP4, loadBalancerIP6, servicePort, false},
		{"pod-2", "cluster IP", clusterIP4, clusterIP6, servicePort, true},
		{"node", "cluster IP", clusterIP4, clusterIP6, servicePort, false},
	}
}

// networks are the protocols and families of each route. The rows of the table are about the first.
func networks() []string { return []string{"tcp4", "tcp6", "udp4", "udp6"} }

// ask makes a connection.
func (d *demo) ask(ctx context.Context, r route, network string) (lab.Answer, error) {
	ns, err := d.world.Machine(r.from)
	if err != nil {
		return lab.Answer{}, err
	}
	ip := r.ip4
	if strings.HasSuffix(network, "6") {
		ip = r.ip6
	}
	d.asked++
	return ns.Ask(ctx, network, netip.AddrPortFrom(netip.MustParseAddr(ip), r.port))
}

// connections connects on all routes to the Service, and prints which pods answered over IPv4 and TCP.
func (d *demo) connections(ctx context.Context) error {
	d.printf("%d connections on each path, by the pod that answered:\n\n", perRoute)
	d.printf("  %-31s %6s %6s %6s %7s   %s\n", "", "pod-1", "pod-2", "pod-3", "failed", "the pods see")
	failures, others := 0, 0
	for _, r := range routes() {
		for i, network := range networks() {
			by, failed, seen := map[string]int{}, 0, map[string]bool{}
			for range perRoute {
				a, err := d.ask(ctx, r, network)
				switch {
				case ctx.Err() != nil:
					return ctx.Err()
				case err != nil:
					if failed++; failed == 1 {
						d.printf("      first failure over %s: %v\n", network, err)
					}
				default:
					by[a.Pod]++
					// A pod that reaches itself must see the node as the source, or its reply would not come back through
					// the node.
					if a.Pod != r.from {
						seen[d.nameOf(a.Source.Addr(), r)] = true
					}
				}
			}
			d.wrong += failed
			who := strings.Join(slices.Sorted(maps.Keys(seen)), ", ")
			if i == 0 {
				d.printf("  %-31s %6d %6d %6d %7d   %s\n", r.from+" to "+r.name, by["pod-1"], by["pod-2"], by["pod-3"], failed, who)
			} else {
				failures, others = failures+failed, others+perRoute
			}
			if len(by) < 3 {
				d.complain("of %d connections over %s, pods got %v", perRoute, network, by)
			}
			if want := map[bool]string{true: "the source", false: "the node"}[r.source]; who != want {
				d.complain("over %s the pods should see %s, but see %s", network, want, who)
			}
		}
	}
	d.printf("  the same for IPv6 and UDP: %d failed of %d\n", failures, others)
	return nil
}

func (d *demo) complain(format string, args ...any) {
	d.wrong++
	d.printf("      WRONG: "+format+"\n", args...)
}

// nameOf returns the name of the host with an address, as the pods of a route see it.
func (d *demo) nameOf(a netip.Addr, r route) string {
	if a.String() == lab.NodeIP4 || a.String() == lab.NodeIP6 {
		return "the node"
	}
	if pod, err := d.world.Pod(r.from); err == nil && (pod.IP4 == a || pod.IP6 == a) {
		return "the source"
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
		for _, network := range networks()[:2] {
			_, err := d.ask(ctx, r, network)
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
