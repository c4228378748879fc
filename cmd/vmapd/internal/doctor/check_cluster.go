package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// listed returns a list as text.
func listed[T fmt.Stringer](list []T) string {
	texts := make([]string, len(list))
	for i, v := range list {
		texts[i] = v.String()
	}
	return strings.Join(texts, ", ")
}

func checkNode(f Facts) []Line {
	if f.Daemon == nil || f.Daemon.Cluster == nil {
		return nil
	}
	n, name := f.Daemon.Node, f.Wants.NodeName
	switch {
	case n.Unread:
		return bad(Warn, fmt.Sprintf("not known yet: it has not been read whether the cluster has a Node %q", name), "see the line about the API server")
	case !n.Known && n.Never:
		return bad(Fail, fmt.Sprintf("the cluster has no Node %q: no endpoint counts as local, and the Node's addresses, pod ranges and zone are not known", name),
			"set --hostname-override to the Node's name (kubectl get nodes), or register the Node")
	case !n.Known:
		return bad(Fail, fmt.Sprintf("the Node %q is deleted: /healthz answers 503, so that load balancers send no new connections; the last known addresses stay in use", name),
			"register the Node again (restart the kubelet), or drain the machine")
	case n.NotEligible != "":
		return bad(Warn, fmt.Sprintf("the Node %q %s: /healthz answers 503, so that load balancers send no new connections", name, n.NotEligible),
			"nothing, if the node is about to go; otherwise remove the taint, or let the kubelet report the Node's addresses")
	case len(n.Addrs) == 0:
		return bad(Warn, fmt.Sprintf("the Node %q has no address", name), "let the kubelet, or the cloud controller, report status.addresses")
	}
	var absent []netip.Addr
	for _, a := range n.Addrs {
		if !f.Host.has(a) {
			absent = append(absent, a)
		}
	}
	if len(f.Host.Interfaces) > 0 && len(absent) == len(n.Addrs) {
		return bad(Fail, fmt.Sprintf("no interface of this machine has an address of the Node %q (%s): it is another machine's", name, listed(n.Addrs)),
			"set --hostname-override to the name of this machine's Node; in a pod, use hostNetwork: true")
	}
	return good(fmt.Sprintf("%s, %s", name, listed(n.Addrs)))
}

// has reports whether an address is on one of the interfaces.
func (h Host) has(a netip.Addr) bool {
	return slices.ContainsFunc(h.Interfaces, func(i Interface) bool { return slices.Contains(i.Addrs, a) })
}

// within reports whether an address is in one of the ranges.
func within(ranges []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(a) })
}

const byClusterCIDR = "ClusterCIDR"

// checkPodRanges compares --cluster-cidr with the addresses that pods of this node have or, without
// pods that Services use, with the Node's pod ranges. A network plugin may ignore the latter, so the
// former decide.
func checkPodRanges(f Facts) []Line {
	if f.Wants.PodsBy != "" && f.Wants.PodsBy != byClusterCIDR || f.Daemon == nil && len(f.Wants.ClusterCIDRs) == 0 {
		if f.Daemon == nil {
			return nil
		}
		return good("pods are told from other clients by " + f.Wants.PodsBy)
	}
	if len(f.Wants.ClusterCIDRs) == 0 {
		return good("--cluster-cidr is not set: pods are not told from other clients")
	}
	var lines []Line
	for _, family := range model.Families {
		if l, ok := f.podRange(family); ok {
			lines = append(lines, l)
		}
	}
	if len(lines) == 0 {
		return good("--cluster-cidr " + listed(f.Wants.ClusterCIDRs))
	}
	return lines
}

// podRange returns the line about a family whose ranges are contradicted.
func (f Facts) podRange(family model.Family) (Line, bool) {
	var ranges []netip.Prefix
	for _, r := range f.Wants.ClusterCIDRs {
		if model.FamilyOf(r.Addr()) == family {
			ranges = append(ranges, r)
		}
	}
	const remedy = "set --cluster-cidr (clusterCIDR) to the ranges of pods in the whole cluster, as the network plugin and the controller manager have it"
	const consequence = "connections of pods count as those of strangers: they are masqueraded, and internal ones may be refused"
	var inside, outside []netip.Addr
	for _, a := range f.Wants.LocalPods {
		switch {
		case model.FamilyOf(a) != family:
		case within(ranges, a):
			inside = append(inside, a)
		default:
			outside = append(outside, a)
		}
	}
	switch {
	case len(ranges) == 0 || len(inside) > 0:
		return Line{}, false
	case len(outside) > 0:
		return Line{Level: Fail, Remedy: remedy, Evidence: fmt.Sprintf("--cluster-cidr %s has none of the pods on this node, such as %v: %s", listed(ranges), outside[0], consequence)}, true
	case f.Daemon == nil:
		return Line{}, false
	}
	for _, p := range f.Daemon.Node.PodCIDRs {
		if model.FamilyOf(p.Addr()) == family && !slices.ContainsFunc(ranges, p.Overlaps) {
			return Line{Level: Warn, Remedy: remedy, Evidence: fmt.Sprintf("--cluster-cidr %s does not contain %v, the Node's spec.podCIDRs: %s", listed(ranges), p, consequence)}, true
		}
	}
	return Line{}, false
}

func checkRounds(f Facts) []Line {
	if f.Daemon == nil {
		return nil
	}
	var lines []Line
	var fine []string
	for _, r := range f.Daemon.Families {
		switch {
		case r.Synced.IsZero() && r.Error == "":
			lines = append(lines, Line{Level: Fail, Evidence: r.Family + ": nothing is programmed yet", Remedy: "see the lines about the API server"})
		case r.Error != "":
			evidence := fmt.Sprintf("%s: the last sync failed", r.Family)
			if !r.Waiting.IsZero() {
				evidence += fmt.Sprintf("; changes wait for %s", span(f.At.Sub(r.Waiting)))
			}
			lines = append(lines, Line{Level: Fail, Evidence: evidence + ": " + oneLine(r.Error), Remedy: roundRemedy(r.Error)})
		case !r.Healthy:
			lines = append(lines, Line{Level: Fail, Evidence: fmt.Sprintf("%s: a change waits for %s", r.Family, span(f.At.Sub(r.Waiting))), Remedy: "look for a busy processor, and read the log"})
		default:
			fine = append(fine, fmt.Sprintf("%s %s", r.Family, f.ago(r.Synced)))
		}
	}
	if len(lines) > 0 {
		return lines
	}
	text := "last sync succeeded: " + strings.Join(fine, ", ")
	if f.Daemon.Pending > 0 {
		text += fmt.Sprintf("; %d changes are pending", f.Daemon.Pending)
	}
	return good(text)
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// roundRemedy returns what to do about the error of a round.
func roundRemedy(err string) string {
	if strings.Contains(err, "owned by another process") {
		return "end the other vmapd on this node (kubectl -n kube-system get pods -o wide, and systemctl): two must not program the same tables"
	}
	return "the error names the cause; vmapd tries again, at least each 30 s"
}

func checkTable(f Facts) []Line {
	if f.Daemon == nil || f.Daemon.Table == nil {
		return nil
	}
	t := f.Daemon.Table
	if t.Skipped != "" {
		return good("not compared: " + t.Skipped)
	}
	var lines []Line
	if t.Count > 0 {
		lines = bad(Fail, fmt.Sprintf("the kernel's rules differ from those that the Services should have, in %d operations, such as: %s",
			t.Count, strings.Join(t.Differences, "; ")), tableRemedy(f.Wants.Backend))
	}
	for _, err := range t.Errors {
		lines = append(lines, bad(Warn, "can't be compared: "+oneLine(err), "the error names the cause")...)
	}
	if len(lines) > 0 {
		return lines
	}
	return good("the kernel has exactly the rules that the Services should have")
}

func tableRemedy(backend string) string {
	if backend == "nftables" {
		return "restart vmapd, which compares and repairs at its start; keep the output for a report"
	}
	return "wait for --iptables-sync-period, after which vmapd compares and repairs; if the line stays, keep the output for a report"
}

func checkOtherProxies(f Facts) []Line {
	if f.Daemon == nil && f.Hangs {
		return nil // rules and ports may be the daemon's own
	}
	var lines []Line
	add := func(l Level, evidence, remedy string) {
		lines = append(lines, Line{Level: l, Evidence: evidence, Remedy: remedy})
	}
	if f.Daemon != nil {
		for _, text := range f.Daemon.OtherProxies {
			add(Fail, oneLine(text), "end the other proxy: delete its DaemonSet, or keep it from this node (cmd/vmapd/deploy/FROM-KUBE-PROXY.md)")
		}
		if f.Daemon.Leftovers != "" {
			add(Warn, "rules that another proxy left: "+f.Daemon.Leftovers, "vmapd removes them; if they stay, the log has the reason")
		}
	} else {
		if f.Host.Listening != "" {
			add(Warn, fmt.Sprintf("a proxy with mode %s answers at the metrics port", f.Host.Listening), "end it before vmapd starts, or do not start vmapd")
		}
		if f.Host.Leftovers != "" {
			add(Warn, "rules of a proxy are on this node: "+f.Host.Leftovers, "without a proxy, remove them with vmapd cleanup")
		}
	}
	if len(lines) > 0 {
		return lines
	}
	return good("no other Service proxy detected")
}

func checkPorts(f Facts) []Line {
	if f.Daemon == nil {
		return nil
	}
	var lines []Line
	for _, p := range f.Daemon.Ports {
		lines = append(lines, bad(Warn, oneLine(p),
			"end the process that has the port (ss -ltnp), or change --healthz-bind-address or --metrics-bind-address; Services work without")...)
	}
	if len(lines) > 0 {
		return lines
	}
	if off := f.Daemon.PortsOff; len(off) > 0 {
		return good("turned off by the configuration: " + strings.Join(off, ", "))
	}
	return good("health and metrics are served")
}
