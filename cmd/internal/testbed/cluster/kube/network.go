package kube

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// The address plan.
const (
	ServiceRanges = "10.96.0.0/16,fd00:96::/112"
	PodRanges     = "10.244.0.0/16,fd00:244::/48"
	DNSAddress    = "10.96.0.10"
	ClusterDomain = "cluster.local"

	// The first addresses of the Service ranges, which the Service kubernetes has.
	kubernetes4, kubernetes6 = "10.96.0.1", "fd00:96::1"

	apiPort = "6443"
)

// Names of spaces that are no nodes.
const (
	Control = "control"
	Outside = "outside"
	bridge  = "switch"
)

const maxNodes = 239

// nodeName returns the name of the node with that number, from 1 on.
func nodeName(number int) string { return fmt.Sprintf("n%d", number) }

// nodeNumber is the reverse of nodeName; it returns 0 for any other name.
func nodeNumber(name string) int {
	n, err := strconv.Atoi(strings.TrimPrefix(name, "n"))
	if err != nil || n < 1 || n > maxNodes || nodeName(n) != name {
		return 0
	}
	return n
}

// Addresses returns the IPv4 and the IPv6 address of a space. They are invalid if the name is
// that of no space.
func Addresses(space string) (netip.Addr, netip.Addr) {
	number := 10 + nodeNumber(space)
	switch {
	case space == Outside:
		number = 250
	case number == 10 && space != Control:
		return netip.Addr{}, netip.Addr{}
	}
	return netip.AddrFrom4([4]byte{192, 168, 77, byte(number)}), netip.MustParseAddr(fmt.Sprintf("fd77::%d", number))
}

// APIServer is the URL of the API server, which works without Services.
func APIServer() string {
	v4, _ := Addresses(Control)
	return fmt.Sprintf("https://%v:%s", v4, apiPort)
}

// buildNetwork makes the switch, and the spaces of the control plane and of the outside client.
func (c *Cluster) buildNetwork(ctx context.Context) error {
	if err := c.makeSpace(ctx, bridge); err != nil {
		return err
	}
	// Where the module br_netfilter is loaded, frames would pass iptables of the switch.
	if err := c.script(ctx, bridge, `for f in /proc/sys/net/bridge/bridge-nf-call-ip*tables; do
  if [ -e "$f" ]; then echo 0 >"$f"; fi
done
ip link add br0 type bridge
ip link set br0 up`); err != nil {
		return err
	}
	for _, space := range []string{Outside, Control} {
		if err := c.plugIn(ctx, space); err != nil {
			return err
		}
	}
	return nil
}

// plugIn makes a space with a link to the switch, addresses, and routes to the pods of other nodes and to all else.
func (c *Cluster) plugIn(ctx context.Context, space string) error {
	if err := c.makeSpace(ctx, space); err != nil {
		return err
	}
	const link = `ip link add %[1]s type veth peer name eth0 netns %[2]d
ip link set %[1]s master br0 up`
	if err := c.script(ctx, bridge, fmt.Sprintf(link, space, c.holder(space).PID())); err != nil {
		return err
	}
	v4, v6 := Addresses(space)
	var script strings.Builder
	script.WriteString("ip link set eth0 up\n")
	fmt.Fprintf(&script, "ip address add %v/24 dev eth0\nip address add %v/64 dev eth0 nodad\n", v4, v6)
	for _, node := range c.Nodes() {
		v4, v6 := Addresses(node)
		pods4, pods6 := podRanges(node)
		if node != space {
			fmt.Fprintf(&script, "ip route add %s via %v\nip route add %s via %v\n", pods4, v4, pods6, v6)
		}
	}
	// The outside client forwards nothing: packets to an address that nothing serves are lost there.
	if v4, v6 := Addresses(Outside); space != Outside {
		fmt.Fprintf(&script, "ip route add default via %v\nip -6 route add default via %v\n", v4, v6)
	}
	return c.script(ctx, space, script.String())
}

// podRanges returns the ranges of a node's pods. The controller manager assigns the same ones to the nodes of a new
// cluster, in turn.
func podRanges(node string) (v4, v6 string) {
	n := nodeNumber(node) - 1
	return fmt.Sprintf("10.244.%d.0/24", n), fmt.Sprintf("fd00:244:0:%x::/64", n)
}

// script runs commands of the shell in a space, until one fails.
func (c *Cluster) script(ctx context.Context, space, commands string) error {
	return Run(c.In(ctx, space, "bash", "-euo", "pipefail", "-c", commands))
}
