package kube

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

const (
	switchLink = "br0"
	uplink     = "eth0"
)

// buildNetwork makes the switch, and the spaces of the control plane and of the outside client.
func (c *Cluster) buildNetwork() error {
	if err := c.makeSpace(bridge); err != nil {
		return err
	}
	err := c.inside(bridge, func(ns *lab.Namespace) error {
		// Where the module br_netfilter is loaded, frames would pass iptables of the switch.
		for _, s := range []string{"net/bridge/bridge-nf-call-iptables", "net/bridge/bridge-nf-call-ip6tables"} {
			if err := ns.Sysctl(s, "0"); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		return ns.AddBridge(switchLink)
	})
	if err != nil {
		return err
	}
	for _, space := range []string{Outside, Control} {
		if err := c.makeSpace(space); err != nil {
			return err
		}
		if err := c.plugIn(space); err != nil {
			return err
		}
	}
	return nil
}

// plugIn gives a space a link to the switch, addresses and a default route.
func (c *Cluster) plugIn(space string) error {
	v4, v6 := Addresses(space)
	return c.inside(space, func(ns *lab.Namespace) error {
		if err := setUp(ns, nodeNumber(space) > 0); err != nil {
			return err
		}
		err := c.inside(bridge, func(sw *lab.Namespace) error {
			if err := lab.Connect(sw, space, ns, uplink); err != nil {
				return err
			}
			return sw.AddPort(switchLink, space)
		})
		if err != nil {
			return err
		}
		for _, a := range []netip.Prefix{netip.PrefixFrom(v4, bits4), netip.PrefixFrom(v6, bits6)} {
			if err := ns.AddAddr(uplink, a); err != nil {
				return err
			}
		}
		if space == Outside {
			return nil
		}
		// The outside client forwards nothing: packets to an address that nothing serves are lost there.
		return addRoutes(ns, []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}, Outside)
	})
}

// setUp sets a space up as a router or as a mere host. "default" is the value of links that are
// added later.
func setUp(ns *lab.Namespace, router bool) error {
	forward := "0"
	if router {
		forward = "1"
	}
	for _, which := range []string{"all", "default"} {
		for _, s := range [][2]string{
			{"net/ipv4/conf/" + which + "/rp_filter", "0"},
			{"net/ipv4/conf/" + which + "/send_redirects", "0"},
			{"net/ipv4/conf/" + which + "/accept_redirects", "0"},
			{"net/ipv6/conf/" + which + "/accept_redirects", "0"},
			{"net/ipv6/conf/" + which + "/disable_ipv6", "0"},
			{"net/ipv6/conf/" + which + "/accept_ra", "0"},
			{"net/ipv6/conf/" + which + "/accept_dad", "0"},
			{"net/ipv4/conf/" + which + "/forwarding", forward},
			{"net/ipv6/conf/" + which + "/forwarding", forward},
		} {
			if err := ns.Sysctl(s[0], s[1]); err != nil {
				return err
			}
		}
	}
	return ns.Sysctl("net/ipv4/ip_forward", forward)
}

// addRoutes adds routes to prefixes through a space.
func addRoutes(ns *lab.Namespace, to []netip.Prefix, through string) error {
	v4, v6 := Addresses(through)
	for _, p := range to {
		via := v6
		if p.Addr().Is4() {
			via = v4
		}
		if err := ns.AddRoute(lab.Route{Dst: p, Link: uplink, Via: via}); err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
	return nil
}

// routePods gives all other machines routes to the pods of a node, and the node those to the pods of
// the other nodes.
func (c *Cluster) routePods(node string, ranges []netip.Prefix, others map[string][]netip.Prefix) error {
	for _, space := range slices.AppendSeq([]string{Control, Outside}, maps.Keys(others)) {
		if err := c.inside(space, func(ns *lab.Namespace) error { return addRoutes(ns, ranges, node) }); err != nil {
			return fmt.Errorf("route the pods of %s: %w", node, err)
		}
	}
	return c.inside(node, func(ns *lab.Namespace) error {
		for other, ranges := range others {
			if err := addRoutes(ns, ranges, other); err != nil {
				return fmt.Errorf("route the pods of %s: %w", other, err)
			}
		}
		return nil
	})
}
