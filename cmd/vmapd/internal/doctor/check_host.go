package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// Files below /proc/sys.
const (
	IPForward      = "net/ipv4/ip_forward"
	IPv6Forward    = "net/ipv6/conf/all/forwarding"
	IPv6Disabled   = "net/ipv6/conf/all/disable_ipv6"
	ReversePathAll = "net/ipv4/conf/all/rp_filter"
	RouteLocalAll  = "net/ipv4/conf/all/route_localnet"
	reversePathOf  = "net/ipv4/conf/%s/rp_filter"
	forwardingOf   = "net/ipv4/conf/%s/forwarding"
	disabledOf     = "net/ipv6/conf/%s/disable_ipv6"
)

// Sysctls returns the files below /proc/sys that Diagnose wants to know, for the given interfaces. The
// slash is the separator, as names of interfaces may have dots.
func Sysctls(interfaces []Interface) []string {
	files := append([]string{IPForward, IPv6Forward, IPv6Disabled, ReversePathAll, RouteLocalAll}, BridgeCalls[:]...)
	for _, i := range interfaces {
		for _, f := range []string{reversePathOf, forwardingOf, disabledOf} {
			files = append(files, fmt.Sprintf(f, i.Name))
		}
	}
	return files
}

func checkForwarding(f Facts) []Line {
	var lines []Line
	add := func(name, file string) {
		dotted := strings.ReplaceAll(file, "/", ".")
		lines = append(lines, bad(Fail, fmt.Sprintf("%s is 0: the node forwards no %s packets, so that Services do not reach pods", dotted, name),
			fmt.Sprintf("sysctl -w %s=1, and in /etc/sysctl.d", dotted))...)
	}
	if f.Host.Sysctls[IPForward] == "0" {
		add("IPv4", IPForward)
	} else {
		for _, i := range f.Host.Interfaces {
			if i.Name == f.Host.DefaultRoutes[model.IPv4] && f.Host.Sysctls[fmt.Sprintf(forwardingOf, i.Name)] == "0" {
				add("IPv4", fmt.Sprintf(forwardingOf, i.Name))
			}
		}
	}
	if f.Host.Sysctls[IPv6Forward] == "0" && f.Wants.ServicePorts[model.IPv6] > 0 && f.ipv6On() {
		add("IPv6", IPv6Forward)
	}
	if len(lines) > 0 {
		return lines
	}
	text := "IPv4 is on"
	if f.Host.Sysctls[IPv6Forward] == "1" {
		text += ", IPv6 too"
	} else if f.ipv6On() {
		text += "; IPv6 is off, and no Service needs it"
	}
	return good(text)
}

// ipv6On reports whether the node has IPv6 at all.
func (f Facts) ipv6On() bool {
	disabled, there := f.Host.Sysctls[IPv6Disabled]
	return there && disabled != "1"
}

func checkIPv6(f Facts) []Line {
	n := f.Wants.ServicePorts[model.IPv6]
	if f.Daemon == nil {
		return nil // the Services are not known
	}
	global := slices.ContainsFunc(f.Host.Interfaces, func(i Interface) bool {
		return slices.ContainsFunc(i.Addrs, func(a netip.Addr) bool { return a.Is6() && a.IsGlobalUnicast() })
	})
	if n == 0 {
		return good("no Service has IPv6 addresses")
	}
	why, remedy := "", "set net.ipv6.conf.all.disable_ipv6=0 and give the node addresses, or make the Services single-stack (spec.ipFamilies)"
	_, there := f.Host.Sysctls[IPv6Disabled]
	switch {
	case !there:
		why, remedy = "the kernel has IPv6 switched off (ipv6.disable=1, or no module)", "boot without ipv6.disable=1, or make the Services single-stack (spec.ipFamilies)"
	case !f.ipv6On():
		why = "net.ipv6.conf.all.disable_ipv6 is 1"
	case !global:
		why = "no interface has an IPv6 address"
	default:
		return good(fmt.Sprintf("is on, for %d service ports", n))
	}
	return bad(Fail, fmt.Sprintf("%s, and %d service ports have IPv6 addresses: these do not work on this node", why, n), remedy)
}

// checkReversePath looks for interfaces on which the kernel drops what does not come by the route back
// (rp_filter 1). That matters where the node has an address of node ports on an interface, and the
// default route is another's: answers to strangers leave by that one.
func checkReversePath(f Facts) []Line {
	all, _ := strconv.Atoi(f.Host.Sysctls[ReversePathAll])
	uplink := f.Host.DefaultRoutes[model.IPv4]
	var strict []string
	for _, i := range f.Host.Interfaces {
		own, _ := strconv.Atoi(f.Host.Sysctls[fmt.Sprintf(reversePathOf, i.Name)])
		served := slices.ContainsFunc(i.Addrs, func(a netip.Addr) bool { return a.Is4() && slices.Contains(f.Wants.NodeAddrs, a) })
		if max(all, own) == 1 && served && uplink != "" && i.Name != uplink {
			strict = append(strict, i.Name)
		}
	}
	if len(strict) == 0 {
		return good("drops no packet of Services, as far as routes tell")
	}
	name := strict[0]
	return bad(Warn, fmt.Sprintf("rp_filter is 1 (strict) on %s, whose addresses have node ports, and the default route is by %s: connections from other networks to those addresses are dropped",
		strings.Join(strict, ", "), uplink),
		fmt.Sprintf("sysctl -w net.ipv4.conf.%s.rp_filter=2 (loose), or restrict --nodeport-addresses", name))
}

// checkLocalnet: with route_localnet, a neighbour can reach what listens on 127.0.0.1 of the node
// (CVE-2020-8558). kube-proxy sets it in the mode iptables, and vmapd does not need it. The kubelet's
// firewall protects a node, which is why it is no warning.
func checkLocalnet(f Facts) []Line {
	if f.Host.Sysctls[RouteLocalAll] != "1" {
		return good("off, and not needed")
	}
	return good("on; vmapd does not need it, and a firewall must protect the node's loopback addresses from its neighbours")
}

func checkConntrack(f Facts) []Line {
	c := f.Host.Conntrack
	if !c.Known {
		return nil
	}
	const nearlyFull = 90
	text := fmt.Sprintf("%d of at most %d entries", c.Used, c.Limit)
	if c.Limit <= 0 {
		text = fmt.Sprintf("%d entries, without a limit", c.Used)
	}
	if c.Dropped > 0 {
		text += fmt.Sprintf("; %d packets were dropped since the boot, as the table was full", c.Dropped)
	}
	if c.InsertFailed > 0 {
		text += fmt.Sprintf("; %d insertions failed since the boot", c.InsertFailed)
	}
	if c.Limit > 0 && int64(c.Used)*100 >= int64(c.Limit)*nearlyFull {
		level := Warn
		if c.Used >= c.Limit {
			level = Fail
		}
		return bad(level, text+": at the limit, new connections are dropped", "raise conntrack.maxPerCore and conntrack.min, or find the client that opens so many (conntrack -L)")
	}
	return good(text)
}

func checkSysctls(f Facts) []Line {
	if f.Daemon == nil {
		return nil // nobody has set them
	}
	if len(f.Host.Unset) == 0 {
		return good("connection tracking is set as configured")
	}
	var lines []Line
	for _, w := range f.Host.Unset {
		remedy := "use the init container with --init-only, which is privileged, or set it on the host"
		if f.Host.ReadOnly {
			remedy = "/proc/sys is mounted read-only: " + remedy
		}
		have := w.Have
		if have == "" {
			have = "not known"
		}
		lines = append(lines, Line{Level: Warn, Remedy: remedy, Evidence: fmt.Sprintf("%s should be %s (%s) and is %s", w.File, w.Value, w.Why, have)})
	}
	return lines
}
