package trace

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"k8s.io/utils/ptr"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/nodesetup"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/tracer"
)

// noRoute asks the kernel for the route of a packet that arrives by an interface, or by none, and returns the reason if
// there is none, or "".
func noRoute(p tracer.Packet, mark uint32, in string) string {
	from, to := p.Source.Addr(), p.Dest.Addr()
	o := &netlink.RouteGetOptions{Iif: in, SrcAddr: from.AsSlice(), Mark: mark}
	routes, err := netlink.RouteGetWithOptions(to.AsSlice(), o)
	isLocal := slices.ContainsFunc(routes, func(r netlink.Route) bool { return r.Type == unix.RTN_LOCAL })
	sysctl := fmt.Sprintf("net/ipv4/conf/%s/forwarding", in)
	if to.Is6() {
		sysctl = "net/ipv6/conf/all/forwarding" // ip6_forward looks at that alone
	}
	if in != "" && !isLocal && read(sysctl) == "0" {
		return fmt.Sprintf("this node does not forward packets (the sysctl %s is 0)", nodesetup.Dotted(sysctl))
	}
	if err == nil {
		return ""
	}
	if by := ruledBy(p, mark, in); by != "" {
		return by
	}
	switch {
	case errors.Is(err, unix.EXDEV), errors.Is(err, unix.EINVAL) && to.Is4(): // EINVAL: newer kernels
		return fmt.Sprintf("the reverse path filter refuses the source %v on interface %s, because answers would leave "+
			"by another one (the sysctl net.ipv4.conf.%s.rp_filter), or an address is martian", from, in, in)
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH):
		return "no route"
	}
	return err.Error()
}

// ruledBy names the rule of ip-rule(8) that sends a packet away or, with its rule, the route that does; "": none does.
func ruledBy(p tracer.Packet, mark uint32, in string) string {
	family := netlink.FAMILY_V4
	if p.Dest.Addr().Is6() {
		family = netlink.FAMILY_V6
	}
	rules, _ := netlink.RuleList(family) // in the order of their priorities
	for _, rule := range rules {
		if ruleMatches(rule, p, mark, in) == rule.Invert {
			continue
		}
		where := fmt.Sprintf("ip rule %d", rule.Priority)
		if mark != 0 && rule.Mark != 0 {
			where += fmt.Sprintf(", by the packet's mark %#x", mark)
		}
		if name := actions[int(rule.Type)]; name != "" {
			return fmt.Sprintf("%s makes it %s", where, name)
		}
		routes, _ := netlink.RouteListFiltered(family, &netlink.Route{Table: rule.Table}, netlink.RT_FILTER_TABLE)
		routes = slices.DeleteFunc(routes, func(r netlink.Route) bool { return !contains(r.Dst, p.Dest.Addr()) })
		if len(routes) == 0 {
			continue
		}
		best := slices.MaxFunc(routes, func(a, b netlink.Route) int { return bytes.Compare(a.Dst.Mask, b.Dst.Mask) })
		table := strconv.Itoa(rule.Table)
		if rule.Table == unix.RT_TABLE_MAIN {
			table = "main"
		}
		if name := actions[best.Type]; name != "" {
			return fmt.Sprintf("the route %v of table %s makes it %s (%s)", best.Dst, table, name, where)
		}
		return "" // the kernel takes this one
	}
	return ""
}

// actions are the types of rules and routes that send packets away.
var actions = map[int]string{
	unix.RTN_BLACKHOLE: "a blackhole", unix.RTN_UNREACHABLE: "unreachable", unix.RTN_PROHIBIT: "prohibited",
}

func ruleMatches(r netlink.Rule, p tracer.Packet, mark uint32, in string) bool {
	inRange := func(r *netlink.RulePortRange, port uint16) bool { return r == nil || r.Start <= port && port <= r.End }
	return mark&ptr.Deref(r.Mask, 0) == r.Mark && contains(r.Src, p.Source.Addr()) && contains(r.Dst, p.Dest.Addr()) &&
		(r.IifName == "" || r.IifName == in || r.IifName == "lo" && in == "") &&
		(r.IPProto == 0 || r.IPProto == int(p.Protocol)) && inRange(r.Sport, p.Source.Port()) &&
		inRange(r.Dport, p.Dest.Port())
}

// contains reports whether a range has an address; nil has all.
func contains(n *net.IPNet, a netip.Addr) bool { return n == nil || n.Contains(a.AsSlice()) }

// read returns the value of a sysctl, or "".
func read(sysctl string) string {
	value, _ := nodesetup.Sysctl(sysctl)
	return value
}

// pastNetfilter returns why packets between two ports of a bridge do not pass netfilter, or "". A bridge's own setting
// (nf_call_iptables) is not seen.
func pastNetfilter(bridge string, f model.Family) string {
	l, err := netlink.LinkByName(bridge)
	if err != nil || l.Type() != "bridge" {
		return ""
	}
	is := cmp.Or(read(nodesetup.BridgeCalls[f]), "not there, without the module br_netfilter")
	if is == "1" {
		return ""
	}
	return nodesetup.Dotted(nodesetup.BridgeCalls[f]) + " is " + is
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
