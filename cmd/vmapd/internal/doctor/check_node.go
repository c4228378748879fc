package doctor

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/nodesetup"
	"github.com/vmapd/vmapd/model"
)

// Files below /proc/sys.
const (
	IPForward    = "net/ipv4/ip_forward"
	IPv6Forward  = "net/ipv6/conf/all/forwarding"
	IPv6Disabled = "net/ipv6/conf/all/disable_ipv6"
)

func setTo1(file string) string {
	return "sysctl -w " + nodesetup.Dotted(file) + "=1, and in /etc/sysctl.d"
}

func (f *Facts) forwarding(l *found) {
	if f.Wants.Backend == userspace {
		return // it forwards no packets
	}
	const text = "%s is 0: the node forwards no %v packets, so that Services do not reach pods"
	if f.Host.Sysctls[IPForward] == "0" {
		l.fail(setTo1(IPForward), text, nodesetup.Dotted(IPForward), model.IPv4)
	}
	if f.Host.Sysctls[IPv6Forward] == "0" && f.Wants.ServicePorts[model.IPv6] > 0 && f.ipv6On() {
		l.fail(setTo1(IPv6Forward), text, nodesetup.Dotted(IPv6Forward), model.IPv6)
	}
	l.otherwise("is on for the IP families of Services")
}

func (f *Facts) podRoutes(l *found) {
	for _, text := range f.Host.NoRoute {
		l.fail("check the network plugin: it makes the routes to pods (ip route)", "the node has no route to a pod: %s", text)
	}
	if len(f.Wants.Pods) > 0 {
		l.otherwise("the kernel has routes to pods, such as %v", f.Wants.Pods[0])
	}
}

// ipv6On reports whether the node has IPv6 at all.
func (f *Facts) ipv6On() bool {
	disabled, there := f.Host.Sysctls[IPv6Disabled]
	return there && disabled != "1"
}

func (f *Facts) ipv6(l *found) {
	const otherwise = ", or make the Services single-stack (spec.ipFamilies)"
	n, why := f.Wants.ServicePorts[model.IPv6], ""
	fix := "set net.ipv6.conf.all.disable_ipv6=0 and give the node addresses" + otherwise
	_, there := f.Host.Sysctls[IPv6Disabled]
	switch {
	case n == 0:
		return
	case !there:
		why, fix = "the kernel has IPv6 switched off (ipv6.disable=1, or no module)",
			"boot without ipv6.disable=1"+otherwise
	case !f.ipv6On():
		why = "net.ipv6.conf.all.disable_ipv6 is 1"
	case !slices.ContainsFunc(f.Host.Addrs, func(a netip.Addr) bool { return a.Is6() && a.IsGlobalUnicast() }):
		why = "no interface has an IPv6 address"
	default:
		l.good("is on, for %d service ports", n)
		return
	}
	l.fail(fix, "%s, and %d service ports have IPv6 addresses: these do not work on this node", why, n)
}

// checkBridges: a connection of a pod to a Service with an endpoint on the same bridge is translated by the node. The
// answer goes from the endpoint to the pod by the bridge, and must be translated, too.
func (f *Facts) bridges(l *found) {
	if f.Wants.Backend == userspace || f.Wants.MasqueradeAll { // answers go to the node
		return
	}
	var names []string
	for _, family := range model.Families {
		bridges := f.podBridges(family)
		if len(bridges) == 0 || f.Daemon != nil && f.Wants.ServicePorts[family] == 0 {
			continue
		}
		names = append(names, bridges...)
		value, there := f.Host.Sysctls[nodesetup.BridgeCalls[family]]
		state, fix := "is 0", setTo1(nodesetup.BridgeCalls[family])
		if !there {
			state = "is missing (the module br_netfilter is not loaded)"
			fix = "modprobe br_netfilter, and in /etc/modules-load.d; then " + fix
		}
		if value != "1" {
			l.fail(fix, "%s %s, and pods are ports of the bridge %s: what they send one another does not pass "+
				"netfilter, so that they do not reach a Service with an endpoint on the same bridge",
				nodesetup.Dotted(nodesetup.BridgeCalls[family]), state, strings.Join(bridges, ", "))
		}
	}
	if slices.Sort(names); len(names) > 0 {
		l.otherwise("traffic between pods on %s passes netfilter", strings.Join(slices.Compact(names), ", "))
	}
}

// podBridges returns the bridges with an address of a family in the network of pods: their network has an endpoint of
// this node, or they have an address in the ranges of pods. Not seen are bridges without an address: their pods have
// another gateway; and those that have a setting of their own (nf_call_iptables).
func (f *Facts) podBridges(family model.Family) (names []string) {
	for _, b := range f.Host.Bridges {
		if slices.ContainsFunc(b.Addrs, func(p netip.Prefix) bool {
			return model.FamilyOf(p.Addr()) == family && (slices.ContainsFunc(f.Wants.LocalPods, p.Contains) ||
				slices.ContainsFunc(f.Wants.PodRanges, func(r netip.Prefix) bool { return r.Contains(p.Addr()) }))
		}) {
			names = append(names, b.Name)
		}
	}
	return names
}

func (f *Facts) conntrack(l *found) {
	used, most := f.Host.Tracked, f.Host.TrackedMost
	const nearlyFull = 90
	const text = "%d of at most %d entries"
	const full = text + ": at the limit, new connections are dropped"
	const fix = "raise conntrack.maxPerCore and conntrack.min, or find the client that opens so many (conntrack -L)"
	switch {
	case most <= 0:
		return
	case used >= most:
		l.fail(fix, full, used, most)
	case int64(used)*100 >= int64(most)*nearlyFull:
		l.warn(fix, full, used, most)
	default:
		l.good(text, used, most)
	}
}

func (f *Facts) sysctls(l *found) {
	if f.Daemon == nil || f.Wants.Backend == userspace {
		return // nobody has set them, or they concern no Service
	}
	fix := "use the init container with --init-only, which is privileged, or set it on the host"
	if f.Host.ReadOnly {
		fix = "/proc/sys is mounted read-only: " + fix
	}
	for _, w := range f.Host.Unset {
		l.warn(fix, "%s should be %s (%s) and is %s", w.File, w.Value, w.Why, cmp.Or(w.Have, "not known"))
	}
	l.otherwise("connection tracking is set as configured")
}
