package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"sync"
)

// Config of a World.
type Config struct {
	Pods  int      // how many there are at first: pod-1, pod-2 and so on
	Ports []uint16 // on which every pod answers, over TCP and UDP
}

// World is a client, a node and pods. Any number of goroutines may use it.
type World struct {
	// Client is a machine outside the cluster. Its routes to the node, the
	// pods and the service ranges go through the node.
	Client *Namespace

	// Node forwards between the client and the pods. Its default route leads to
	// the client, which forwards nothing: untranslated packets to a service
	// address are lost there, as in a cluster.
	Node *Namespace

	ports []uint16

	mu     sync.Mutex
	closed bool
	pods   []*Pod
	made   int           // pods ever made
	next   [2]netip.Addr // addresses of the next pod
}

// New builds a world. If it fails, or ctx ends meanwhile, nothing is left of
// it.
func New(ctx context.Context, c Config) (*World, error) {
	w := &World{
		ports: c.Ports,
		next:  [2]netip.Addr{netip.MustParseAddr(FirstPodIP4), netip.MustParseAddr(FirstPodIP6)},
	}
	if err := w.build(ctx, c.Pods); err != nil {
		return nil, errors.Join(fmt.Errorf("build world: %w", err), w.Close())
	}
	return w, nil
}

// build does the work of New; the caller clears up.
func (w *World) build(ctx context.Context, pods int) error {
	var err error
	if w.Client, err = newMachine("client"); err != nil {
		return err
	}
	if w.Node, err = newMachine("node"); err != nil {
		return err
	}
	for _, name := range []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"} {
		if err := w.Node.Sysctl(name, "1"); err != nil {
			return err
		}
	}
	if err := w.joinClient(); err != nil {
		return err
	}
	for i := range pods {
		if _, err := w.AddPod(ctx, "pod-"+strconv.Itoa(i+1)); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// newMachine makes a namespace with the settings of all machines.
func newMachine(name string) (*Namespace, error) {
	ns, err := NewNamespace(name)
	if err != nil {
		return nil, err
	}
	// "all" and "default" of a new namespace are copies of the host's for
	// IPv4, and may be copies for IPv6 (net.core.devconf_inherit_init_net), so
	// nothing is left to chance that a distribution changes. They are set
	// before there are links: "default" is what a new link gets.
	settings := [][2]string{
		{"net/ipv4/conf/%s/rp_filter", "0"},
		{"net/ipv4/conf/%s/accept_redirects", "0"},
		// Without a proxy, the node returns the client's packets to the client;
		// it must not send redirects.
		{"net/ipv4/conf/%s/send_redirects", "0"},
		{"net/ipv6/conf/%s/disable_ipv6", "0"},
		{"net/ipv6/conf/%s/accept_redirects", "0"},
		{"net/ipv6/conf/%s/accept_ra", "0"},
		{"net/ipv6/conf/%s/accept_dad", "0"},
		// No link-local addresses: nothing needs them, and they would have the
		// kernel send packets that no test expects.
		{"net/ipv6/conf/%s/addr_gen_mode", "1"},
	}
	err = ns.Do(func() (err error) {
		for _, s := range settings {
			err = errors.Join(err, setSysctl(fmt.Sprintf(s[0], "all"), s[1]), setSysctl(fmt.Sprintf(s[0], "default"), s[1]))
		}
		return err
	})
	if err != nil {
		return nil, errors.Join(err, ns.Close())
	}
	return ns, nil
}

// family is the address plan of one IP family, parsed.
type family struct {
	node, client netip.Addr
	second       netip.Addr // of the client
	nodes        netip.Prefix
	outside      netip.Prefix
	pods         netip.Prefix
	services     []netip.Prefix
}

// families returns IPv4's plan and IPv6's.
func families() [2]family {
	addr, prefix := netip.MustParseAddr, netip.MustParsePrefix
	return [2]family{{
		node: addr(NodeIP4), client: addr(ClientIP4), second: addr(SecondClientIP4),
		nodes: prefix(NodeRange4), outside: prefix(OutsideRange4), pods: prefix(PodRange4),
		services: []netip.Prefix{prefix(ClusterIPRange4), prefix(ExternalIPRange4), prefix(LoadBalancerRange4)},
	}, {
		node: addr(NodeIP6), client: addr(ClientIP6), second: addr(SecondClientIP6),
		nodes: prefix(NodeRange6), outside: prefix(OutsideRange6), pods: prefix(PodRange6),
		services: []netip.Prefix{prefix(ClusterIPRange6), prefix(ExternalIPRange6), prefix(LoadBalancerRange6)},
	}}
}

// joinClient makes the link between node and client, with everything on it.
// The two have addresses of different networks on one link, and routes that
// say so: that leaves the node with one address per family, its primary one.
func (w *World) joinClient() error {
	if err := Connect(w.Node, UplinkName, w.Client, "eth0"); err != nil {
		return err
	}
	var steps []func() error
	for _, f := range families() {
		everything := netip.PrefixFrom(f.node, 0).Masked()
		steps = append(steps,
			func() error { return w.Node.AddAddr(UplinkName, netip.PrefixFrom(f.node, f.nodes.Bits())) },
			func() error { return w.Client.AddAddr("eth0", netip.PrefixFrom(f.client, f.outside.Bits())) },
			func() error { return introduce(w.Node, UplinkName, f.node, w.Client, "eth0", f.client) },
			func() error { return w.Client.AddRoute(Route{Dst: f.nodes, Link: "eth0"}) },
			func() error { return w.Node.AddRoute(Route{Dst: f.outside, Link: UplinkName, Source: f.node}) },
			func() error { return w.AddClientAddr(f.second) },
			func() error {
				return w.Node.AddRoute(Route{Dst: everything, Link: UplinkName, Via: f.client, Source: f.node})
			},
			// A pod that is gone is unreachable, and not somewhere outside.
			func() error { return w.Node.AddRoute(Route{Dst: f.pods, Unreachable: true}) },
		)
		for _, dst := range append(f.services, f.pods) {
			steps = append(steps, func() error { return w.Client.AddRoute(Route{Dst: dst, Link: "eth0", Via: f.node}) })
		}
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// AddClientAddr gives the client one more address, for AskFrom: one client can be many.
func (w *World) AddClientAddr(a netip.Addr) error { return w.addAddrOf(w.Client, UplinkName, a) }

// AddPodAddr gives a pod one more address, for AskFrom.
func (w *World) AddPodAddr(p *Pod, a netip.Addr) error {
	if err := w.Node.AddRoute(Route{Dst: netip.PrefixFrom(a, a.BitLen()), Link: p.Link}); err != nil {
		return err
	}
	return w.addAddrOf(p.Namespace, p.Link, a)
}

// addAddrOf adds an address to a machine that has it at the other end of a link of the node.
func (w *World) addAddrOf(ns *Namespace, link string, a netip.Addr) error {
	if err := ns.AddAlias("eth0", a); err != nil {
		return err
	}
	mac, err := ns.mac("eth0")
	if err != nil {
		return err
	}
	return w.Node.AddNeighbor(link, a, mac)
}

// introduce makes the two ends of a link neighbours for good.
func introduce(a *Namespace, aLink string, aAddr netip.Addr, b *Namespace, bLink string, bAddr netip.Addr) error {
	aMAC, err := a.mac(aLink)
	if err != nil {
		return err
	}
	bMAC, err := b.mac(bLink)
	if err != nil {
		return err
	}
	if err := a.AddNeighbor(aLink, bAddr, bMAC); err != nil {
		return err
	}
	return b.AddNeighbor(bLink, aAddr, aMAC)
}

// Close stops the pods' servers and gives up all namespaces. Programs started
// with Command run until their context ends; end them first.
func (w *World) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true

	var errs []error
	for _, p := range w.pods {
		errs = append(errs, p.Close())
	}
	w.pods = nil
	for _, ns := range []*Namespace{w.Node, w.Client} {
		if ns != nil {
			errs = append(errs, ns.Close())
		}
	}
	return errors.Join(errs...)
}
