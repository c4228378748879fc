package neighbours

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// A neighbourhood is a random cluster whose Services share addresses, port numbers and pods, and
// a program that uses NAT on the same node.

// neighbours are its Services; the last of the pods is an endpoint of none.
const neighbours, neighbourPods = 4, podCount + 1

// sharing makes the objects of a round. Nearly all external addresses are those of the node, of
// pods, or of several Services, and nearly all ports are a node port or a pod's port as well. The
// Services have names of their own: one that kept its name would keep its clients, too, who come
// back to endpoints that it still has.
func (r randomLab) sharing(round int) []modeltest.Object {
	list := []modeltest.Object{
		modeltest.OurNode().In("zone-a").Pods("10.0.0.2/31", "fd00:10::2/127"),
		modeltest.NewServiceCIDR("kubernetes", lab.ClusterIPRange4, lab.ClusterIPRange6),
	}
	for i := range neighbours {
		name := fmt.Sprintf("default/web-%d-%d", round, i)
		list = append(list, r.neighbour(name, i))
		for _, f := range model.Families {
			if r.IntN(12) > 0 {
				list = append(list, r.slice(name, f))
			}
		}
	}
	return list
}

func (r randomLab) neighbour(name string, i int) modeltest.Service {
	number := func() int32 { return choose(r, 80, int32(30080+r.IntN(neighbours)), 8080, 8080) }
	s := modeltest.NewService(name).Typed("LoadBalancer").CreatedAt(i).
		On(fmt.Sprintf("172.30.0.%d", 41+i), fmt.Sprintf("fd00:172:30::%d", 41+i)).
		Policies(choose(r, "Cluster", "Cluster", "Local"), choose(r, "Cluster", "Cluster", "Local")).
		TCP("tcp", number()).NodePort(int32(30080+i)).UDP("udp", number()).NodePort(int32(30080+i)).TCP("other", number())
	for range 1 + r.IntN(2) {
		s = s.External(append(slices.Clip(s.ExternalIPs), r.sharedAddrs()...)...)
	}
	if r.IntN(2) == 0 {
		s = s.LoadBalancer(r.sharedAddrs()...)
	}
	if r.IntN(3) > 0 {
		s = s.Sticky(10800)
	}
	if r.IntN(4) == 0 {
		s = s.Algorithm(choose(r, "random", "maglev", "maglev-port"))
	}
	if r.IntN(6) == 0 {
		s = s.Ranges("203.0.113.0/25", "10.0.0.0/8", "2001:db8:203::/121", "fd00:10::/64")
	}
	return s
}

// sharedAddrs returns an external address of each family.
func (r randomLab) sharedAddrs() []string {
	pod := r.IntN(podCount)
	return choose(r,
		[]string{lab.NodeIP4, lab.NodeIP6},
		[]string{lab.NodeIP4, lab.NodeIP6},
		[]string{"192.168.99.50", "fd00:192:168:99::50"},
		[]string{modeltest.Pod(model.IPv4, pod).String(), modeltest.Pod(model.IPv6, pod).String()},
		[]string{modeltest.Pod(model.IPv4, pod).String(), modeltest.Pod(model.IPv6, pod).String()},
	)
}

// foreignUser is a program that uses NAT on the node, too.
type foreignUser struct {
	name string
	// masquerades reports whether it masquerades a packet to a pod.
	masquerades func(source netip.Addr) bool
	commands    [][]string // with the standard input in front
	// hostPort is a port of the node that leads to the last pod; 0 for none.
	hostPort uint16
	first    bool // it is there before our rules
}

func (u foreignUser) String() string {
	return fmt.Sprintf("%s, host port %d, before ours: %v", u.name, u.hostPort, u.first)
}

// foreignUser returns one of those that nodes have: flannel's rule masquerades packets from
// outside to pods, others masquerade all of them.
func (r randomLab) foreignUser() foreignUser {
	nobody := func(netip.Addr) bool { return false }
	everybody := func(netip.Addr) bool { return true }
	outside := func(source netip.Addr) bool {
		return !netip.MustParsePrefix(lab.PodRange4).Contains(source) && !netip.MustParsePrefix(lab.PodRange6).Contains(source)
	}
	flannel := func(variant, verb string) [][]string {
		rule := func(program, pods string) []string {
			return []string{"", program + variant, "-t", "nat", verb, "POSTROUTING", "!", "-s", pods, "-d", pods, "-j", "MASQUERADE"}
		}
		return [][]string{rule("iptables-", lab.PodRange4), rule("ip6tables-", lab.PodRange6)}
	}
	byNFT := func(priority string) [][]string {
		var table strings.Builder
		fmt.Fprintf(&table, "table inet plugin { chain leave { type nat hook postrouting priority %s; ", priority)
		fmt.Fprintf(&table, "ip daddr %s masquerade; ip6 daddr %s masquerade; }; }", lab.PodRange4, lab.PodRange6)
		return [][]string{{table.String(), "nft", "-f", "-"}}
	}
	u := choose(r,
		foreignUser{name: "nobody", masquerades: nobody},
		foreignUser{name: "flannel by iptables-legacy", masquerades: outside, commands: flannel("legacy", choose(r, "-A", "-I"))},
		foreignUser{name: "flannel by iptables-nft", masquerades: outside, commands: flannel("nft", choose(r, "-A", "-I"))},
		foreignUser{name: "a chain at srcnat", masquerades: everybody, commands: byNFT("srcnat")},
		foreignUser{name: "a chain before srcnat", masquerades: everybody, commands: byNFT("50")},
	)
	u.first = r.IntN(2) == 0
	if r.IntN(2) == 0 {
		u.hostPort = choose(r, 8090, uint16(30080+r.IntN(neighbours)))
		last := neighbourPods - 1
		u.commands = append(u.commands, []string{fmt.Sprintf(
			"table inet hostport { chain arrive { type nat hook prerouting priority -110; "+
				"meta l4proto { tcp, udp } ip daddr %s th dport %d dnat ip to %v:8080; "+
				"meta l4proto { tcp, udp } ip6 daddr %s th dport %d dnat ip6 to [%v]:8080; }; }",
			lab.NodeIP4, u.hostPort, modeltest.Pod(model.IPv4, last), lab.NodeIP6, u.hostPort, modeltest.Pod(model.IPv6, last),
		), "nft", "-f", "-"})
	}
	return u
}

// takes reports whether the connection is translated before our rules meet it.
func (u foreignUser) takes(c model.Connection) bool {
	isNode := c.Dest.Addr() == netip.MustParseAddr(lab.NodeIP4) || c.Dest.Addr() == netip.MustParseAddr(lab.NodeIP6)
	return u.hostPort != 0 && !c.Node && isNode && c.Dest.Port() == u.hostPort
}

func (u foreignUser) setUp(t *testing.T, node *lab.Namespace) {
	t.Helper()
	for _, command := range u.commands {
		c := node.Command(t.Context(), command[1], command[2:]...)
		c.Stdin = strings.NewReader(command[0])
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", command, err, out)
		}
	}
}

// neighbourClient is a client of a neighbourhood.
type neighbourClient struct {
	from    *lab.Namespace
	iface   string // of the node
	sources [len(model.Families)]netip.Addr
}

// clients are a few of those that there are, so that each of them makes several connections.
func (r randomLab) clients(w *lab.World) []neighbourClient {
	addrs := func(v4, v6 string) [2]netip.Addr {
		return [2]netip.Addr{netip.MustParseAddr(v4), netip.MustParseAddr(v6)}
	}
	all := []neighbourClient{
		{w.Client, lab.UplinkName, addrs(lab.ClientIP4, lab.ClientIP6)},
		{w.Client, lab.UplinkName, addrs(lab.SecondClientIP4, lab.SecondClientIP6)},
		{w.Node, "", addrs(lab.NodeIP4, lab.NodeIP6)},
	}
	for _, pod := range w.Pods() {
		all = append(all, neighbourClient{pod.Namespace, pod.Link, [2]netip.Addr{pod.IP4, pod.IP6}})
	}
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:3]
}

// favourites are a few service ports, which get most of the connections: those with session
// affinity rather than others.
func (r randomLab) favourites(s *model.Snapshot) map[*model.ServicePort]bool {
	chosen := map[*model.ServicePort]bool{}
	for _, f := range model.Families {
		for sp := range s.Family(f).ServicePorts() {
			if sp.Affinity > 0 && r.IntN(3) == 0 || r.IntN(8) == 0 {
				chosen[sp] = true
			}
		}
	}
	return chosen
}

// visit makes a connection of a client, most often to a frontend of a favourite.
func (r randomLab) visit(s *model.Snapshot, favourites map[*model.ServicePort]bool, from neighbourClient, u foreignUser) model.Connection {
	f := choose(r, model.IPv4, model.IPv4, model.IPv6)
	c := model.Connection{
		Source: from.sources[f], Node: from.iface == "", Interface: from.iface, Protocol: choose(r, model.TCP, model.TCP, model.UDP),
	}
	node := netip.MustParseAddr([]string{lab.NodeIP4, lab.NodeIP6}[f])
	if n := r.IntN(10); n == 0 && u.hostPort != 0 {
		c.Dest = netip.AddrPortFrom(node, u.hostPort)
		return c
	}
	var all, favoured []model.Frontend
	for sp := range s.Family(f).ServicePorts() {
		if all = append(all, sp.Frontends...); favourites[sp] {
			favoured = append(favoured, sp.Frontends...)
		}
	}
	fe := choose(r, all...)
	if len(favoured) > 0 && r.IntN(3) > 0 {
		fe = choose(r, favoured...)
	}
	if c.Protocol = fe.VIP.Protocol; fe.Kind == model.NodePort {
		fe.VIP.Addr = node
	}
	c.Dest = netip.AddrPortFrom(fe.VIP.Addr, fe.VIP.Port)
	return c
}
