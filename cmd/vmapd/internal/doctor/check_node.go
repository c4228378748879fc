package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/nodesetup"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/others"
)

// tracking is the priority of connection tracking.
const tracking = -200

// showsIt ends the lines about chains: what they do with a connection, the kernel alone decides.
const showsIt = "vmapd trace ADDRESS:PORT/PROTO shows whether a connection meets it"

// firewall names the base chains of other programs that may drop packets. Whether they drop those of Services
// depends on their rules, which nothing here follows.
func (f *Facts) firewall(l *found) {
	if !f.Host.NetAdmin {
		return // nothing could be read
	}
	for _, c := range f.Host.Chains {
		f.mayDrop(l, c)
		f.untracks(l, c)
		f.translates(l, c)
	}
	for _, family := range model.Families {
		f.untraceable(l, family)
	}
	for _, text := range f.Host.Unread {
		l.warn("look at the rules of other programs with nft list ruleset", "%s", text)
	}
	l.otherwise("no other program has a base chain with the policy drop")
}

// mayDrop is about a chain with the policy drop, or with rules that drop or reject. Rules are usual. A policy is a
// warning, since all packets of Services need a rule there that accepts them.
func (f *Facts) mayDrop(l *found, c Chain) {
	text := fmt.Sprintf("%v (hook %s, priority %d), which is not vmapd's, ", c.Place, c.Hook, c.Priority)
	if !c.Drops {
		if c.Rules > 0 {
			l.good("%shas %s that may drop or reject packets, which is usual; only %s",
				text, report.Plural(c.Rules, "rule"), showsIt)
		}
		return
	}
	text += "may drop connections to Services: its policy is drop"
	if c.Rules > 0 {
		text += fmt.Sprintf(", and %d of its rules may drop or reject packets", c.Rules)
	}
	if !f.servicesPass(c.Hook) {
		l.good("%s; only %s", text, showsIt)
		return
	}
	packets := "packets of Services"
	if c.Hook == others.Forward {
		packets = "forwarded packets from and to the ranges of pods"
	}
	l.warn(fmt.Sprintf("%s; if it is dropped there, accept %s in that chain", showsIt, packets), "%s", text)
}

// servicesPass reports whether packets of each Service pass a hook. The others pass those of some, such as the hook
// input for an endpoint on the node itself.
func (f *Facts) servicesPass(h others.Hook) bool {
	switch b := f.Wants.Backend; h {
	case others.Input:
		return b == "ipvs" || b == userspace
	case others.Forward:
		return b != userspace
	default:
		return true
	}
}

// untracks is about rules that keep packets from being tracked. IPVS and userspace work without tracking.
func (f *Facts) untracks(l *found, c Chain) {
	if len(c.Untracks) == 0 || c.Priority > tracking || f.Wants.Backend == "ipvs" || f.Wants.Backend == userspace {
		return
	}
	first, also := c.Untracks[0], ""
	if n := len(c.Untracks); n > 1 {
		also = fmt.Sprintf(", one of %d such rules at the hook %s", n, c.Hook)
	}
	l.warn(showsIt+"; delete it, unless NodeLocal DNSCache made it and runs on this node",
		"%v, rule %d, which is not vmapd's, keeps packets from being tracked (NOTRACK)%s: "+
			"a connection to a Service that meets it reaches no endpoint, unless a process of this node has the "+
			"address; "+
			"an answer that meets it keeps the endpoint's address", first.Place, first.Position, also)
}

// translates is about rules that replace a destination by a Service's address.
func (f *Facts) translates(l *found, c Chain) {
	if f.Daemon == nil || f.Daemon.IsClusterIP == nil {
		return
	}
	for _, rule := range c.Translates {
		if f.Daemon.IsClusterIP(rule.To) {
			l.warn("let the rule translate to an endpoint, or clients connect to the Service's address",
				"%v, rule %d, which is not vmapd's, translates connections to %v, the address of a Service: "+
					"the kernel translates once, so they leave the node to that address",
				rule.Place, rule.Position, rule.To)
		}
	}
}

// untraceable is about tables of iptables-legacy, which are not read. With the backends iptables and ipvs, they may be
// vmapd's own.
func (f *Facts) untraceable(l *found, family model.Family) {
	tables := f.Host.LegacyTables[family]
	if b := f.Wants.Backend; len(tables) == 0 || b == "iptables" || b == "ipvs" {
		return
	}
	program := [...]string{model.IPv4: "iptables-legacy", model.IPv6: "ip6tables-legacy"}[family]
	l.warn(program+"-save lists them, and "+program+" -t TABLE -L -v -n counts packets",
		"%s has the tables %s: their rules may drop connections to Services, and the kernel cannot trace them",
		program, strings.Join(tables, ", "))
}

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
	if len(f.Host.NoRoute) > 0 {
		l.fail("check the network plugin: it makes the routes to pods (ip route)", "the node has no route to a pod: %s",
			report.List(f.Host.NoRoute, 1))
	}
	if mtus := slices.Sorted(maps.Keys(f.Host.MTUs)); len(mtus) > 1 {
		least, most := mtus[0], mtus[len(mtus)-1]
		l.good("the MTU is %d to %s, and %d to %s: if large packets hang, a firewall drops ICMP errors about them",
			least, f.Host.MTUs[least], most, f.Host.MTUs[most])
	}
	if len(f.Wants.Pods) > 0 {
		l.otherwise("the kernel has routes to pods, such as %v", f.Wants.Pods[0])
	}
}

// ipv6On reports whether the node has IPv6 at all.
func (f *Facts) ipv6On() bool {
	disabled := f.Host.Sysctls[IPv6Disabled]
	return disabled != "" && disabled != "1"
}

func (f *Facts) ipv6(l *found) {
	const otherwise = ", or make the Services single-stack (spec.ipFamilies)"
	n, why := f.Wants.ServicePorts[model.IPv6], ""
	fix := "set net.ipv6.conf.all.disable_ipv6=0 and give the node addresses" + otherwise
	switch {
	case n == 0:
		return
	case f.Host.Sysctls[IPv6Disabled] == "":
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

// bridges: a connection of a pod to a Service with an endpoint on the same bridge is translated by the node. The
// answer goes from the endpoint to the pod by the bridge, and must be translated, too.
func (f *Facts) bridges(l *found) {
	if f.Wants.MasqueradeAll { // answers go to the node
		return
	}
	var names []string
	for _, family := range model.Families {
		bridges := f.podBridges(family)
		if len(bridges) == 0 || f.Daemon != nil && f.Wants.ServicePorts[family] == 0 {
			continue
		}
		names = append(names, bridges...)
		value := f.Host.Sysctls[nodesetup.BridgeCalls[family]]
		state, fix := "is 0", setTo1(nodesetup.BridgeCalls[family])
		if value == "" {
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
	fix := "use the init container with --init-only, which is privileged, or set it on the host"
	if f.Host.ReadOnly {
		fix = "/proc/sys is mounted read-only: " + fix
	}
	for _, w := range f.Host.Unset {
		l.warn(fix, "%s should be %s (%s) and is %s", w.File, w.Value, w.Why, cmp.Or(w.Have, "not known"))
	}
	l.otherwise("connection tracking is set as configured")
}
