package trace

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/nodesetup"
	"github.com/vmapd/vmapd/model"
)

// noRoute asks the kernel for the route of a packet that arrives by an interface, and returns the reason if there is
// none, or "".
func noRoute(from, to netip.Addr, in string) string {
	o := &netlink.RouteGetOptions{Iif: in, SrcAddr: from.AsSlice()}
	routes, err := netlink.RouteGetWithOptions(to.AsSlice(), o)
	family, all := "ipv4", in
	if to.Is6() {
		family, all = "ipv6", "all" // ip6_forward looks at that alone
	}
	is := func(types ...int) bool {
		return slices.ContainsFunc(routes, func(r netlink.Route) bool { return slices.Contains(types, r.Type) })
	}
	sysctl := fmt.Sprintf("net/%s/conf/%s/forwarding", family, all)
	switch {
	case !is(unix.RTN_LOCAL) && read(sysctl) == "0":
		return fmt.Sprintf("this node does not forward packets (the sysctl %s is 0)", nodesetup.Dotted(sysctl))
	case err == nil && is(unix.RTN_UNREACHABLE, unix.RTN_BLACKHOLE, unix.RTN_PROHIBIT):
		return "a route says that it must not be reached"
	case err == nil:
		return ""
	case errors.Is(err, unix.EXDEV), errors.Is(err, unix.EINVAL) && isReversed(from, in): // EXDEV: newer kernels
		return fmt.Sprintf("the reverse path filter refuses the source %v on interface %s, "+
			"because answers would leave by another one (the sysctl net.ipv4.conf.%s.rp_filter)", from, in, in)
	case errors.Is(err, unix.EINVAL):
		return fmt.Sprintf("it refuses %v → %v on interface %s as martian", from, to, in)
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH):
		return "no route"
	case errors.Is(err, unix.EACCES):
		return "a route prohibits it"
	}
	return err.Error()
}

// isReversed reports whether packets to an address leave by another interface than the one by which packets from there
// come in, where the reverse path filter demands that they do not. In its loose mode (2), any interface will do.
func isReversed(from netip.Addr, in string) bool {
	if !from.Is4() {
		return false
	}
	const strict, loose = "1", "2"
	mode := max(read("net/ipv4/conf/all/rp_filter"), read("net/ipv4/conf/"+in+"/rp_filter"))
	if mode != strict && mode != loose {
		return false
	}
	routes, err := netlink.RouteGet(from.AsSlice())
	if err != nil || len(routes) == 0 {
		return true
	}
	out, err := netlink.LinkByIndex(routes[0].LinkIndex)
	return mode == strict && err == nil && out.Attrs().Name != in
}

// read returns the value of a sysctl, or "".
func read(sysctl string) string {
	b, _ := os.ReadFile("/proc/sys/" + sysctl)
	return strings.TrimSpace(string(b))
}

// pastNetfilter returns why packets between two ports of a bridge do not pass netfilter, or "". A bridge's own setting
// (nf_call_iptables) is not seen.
func pastNetfilter(bridge string, f model.Family) string {
	l, err := netlink.LinkByName(bridge)
	if err != nil || l.Type() != "bridge" {
		return ""
	}
	switch read(nodesetup.BridgeCalls[f]) {
	case "1":
		return ""
	case "":
		return "the module br_netfilter is not loaded"
	}
	return nodesetup.Dotted(nodesetup.BridgeCalls[f]) + " is 0"
}

// noNeighbour returns the reason if nothing answered the kernel's requests for the next hop on an interface, or "".
func noNeighbour(to netip.Addr, out string) string {
	routes, err := netlink.RouteGetWithOptions(to.AsSlice(), &netlink.RouteGetOptions{Oif: out})
	if err != nil || len(routes) == 0 {
		return ""
	}
	hop := to
	if gw, ok := netip.AddrFromSlice(routes[0].Gw); ok {
		hop = gw.Unmap()
	}
	neighbours, _ := netlink.NeighList(routes[0].LinkIndex, 0)
	for _, n := range neighbours {
		a, _ := netip.AddrFromSlice(n.IP)
		if a.Unmap() == hop && n.State&(netlink.NUD_FAILED|netlink.NUD_INCOMPLETE) != 0 {
			return fmt.Sprintf("no host answers for the address %v on interface %s", hop, out)
		}
	}
	return ""
}
