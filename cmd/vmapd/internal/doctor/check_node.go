package doctor

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/nodesetup"
	"github.com/vmapd/vmapd/model"
)

func missingDaemon(f Facts, l *found) {
	const alone = "The other lines are about the node alone"
	switch {
	case f.Daemon != nil:
	case f.Hangs:
		l.fail("read its log (kubectl -n kube-system logs), and restart it if it hangs. "+alone, "%s", f.NoDaemon)
	default:
		l.fail("start it, or read the log of the one that should run (kubectl -n kube-system logs): "+
			"existing rules keep working but are not updated. "+alone, "%s", f.NoDaemon)
	}
}

func invalidConfiguration(f Facts, l *found) {
	if f.ConfigError != "" {
		l.fail("correct the flag or the field",
			"the daemon would not start with this configuration: %s", f.ConfigError)
	}
}

func checkVersion(f Facts, l *found) {
	if f.Daemon != nil && f.Daemon.Version != f.Version {
		l.warn("use the program of the daemon's image: kubectl exec into vmapd's pod on this node",
			"the daemon is %s, and this program %s", f.Daemon.Version, f.Version)
	}
	l.otherwise("vmapd %s, Linux %s", f.Version, f.Host.Kernel)
}

func checkPrivilege(f Facts, l *found) {
	if !f.Host.NetAdmin {
		l.warn(wantPrivilege, "this process lacks CAP_NET_ADMIN: the rules of other programs can't be read, "+
			"and a daemon with the same rights could not start")
	}
	l.otherwise("CAP_NET_ADMIN")
}

// checkPrograms says what the configured backend lacks, without a daemon.
func checkPrograms(f Facts, l *found) {
	if programs := f.Host.NoPrograms; len(programs) > 0 {
		l.fail("vmapd's image has them; on a host, install them, or use --backend=auto",
			"programs that the backend %s runs are not installed: %s", f.Wants.Backend, strings.Join(programs, ", "))
	}
}

func checkOtherProxies(f Facts, l *found) {
	if f.Daemon != nil || f.Hangs {
		return // rules and ports may be the daemon's own
	}
	if f.Host.Listening != "" {
		l.warn("end it before vmapd starts, or do not start vmapd",
			"a proxy with mode %s answers at the metrics port", f.Host.Listening)
	}
	if f.Host.Leftovers != "" {
		l.warn("without a proxy, remove them with vmapd cleanup",
			"rules of a proxy are on this node: %s", f.Host.Leftovers)
	}
	unexamined(f.Host.Unexamined, l)
	l.otherwise("no other Service proxy detected")
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

func checkForwarding(f Facts, l *found) {
	const text = "%s is 0: the node forwards no %v packets, so that Services do not reach pods"
	if f.Host.Sysctls[IPForward] == "0" {
		l.fail(setTo1(IPForward), text, nodesetup.Dotted(IPForward), model.IPv4)
	}
	if f.Host.Sysctls[IPv6Forward] == "0" && f.Wants.ServicePorts[model.IPv6] > 0 && f.ipv6On() {
		l.fail(setTo1(IPv6Forward), text, nodesetup.Dotted(IPv6Forward), model.IPv6)
	}
	l.otherwise("is on for the IP families of Services")
}

// ipv6On reports whether the node has IPv6 at all.
func (f Facts) ipv6On() bool {
	disabled, there := f.Host.Sysctls[IPv6Disabled]
	return there && disabled != "1"
}

func checkIPv6(f Facts, l *found) {
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
func checkBridges(f Facts, l *found) {
	if f.Wants.Backend == "userspace" || f.Wants.MasqueradeAll { // answers go to the node
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
func (f Facts) podBridges(family model.Family) (names []string) {
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

func checkConntrack(f Facts, l *found) {
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

func checkSysctls(f Facts, l *found) {
	if f.Daemon == nil {
		return // nobody has set them
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
