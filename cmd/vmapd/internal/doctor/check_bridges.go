package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// BridgeCalls are the settings by which packets that a bridge passes on meet netfilter. Without the module
// br_netfilter, there are none.
var BridgeCalls = [len(model.Families)]string{
	model.IPv4: "net/bridge/bridge-nf-call-iptables", model.IPv6: "net/bridge/bridge-nf-call-ip6tables",
}

// checkBridges: a connection of a pod to a Service whose endpoint is on the same bridge is translated by the node. The
// answer goes from the endpoint to the pod by the bridge, and must be translated, too.
func checkBridges(f Facts) (lines []Line) {
	if f.Wants.Backend == "userspace" || f.Wants.MasqueradeAll { // answers go to the node
		return nil
	}
	var names []string
	for _, family := range model.Families {
		bridges := f.podBridges(family)
		if len(bridges) == 0 || f.Daemon != nil && f.Wants.ServicePorts[family] == 0 {
			continue
		}
		names = append(names, bridges...)
		file := BridgeCalls[family]
		dotted := strings.ReplaceAll(file, "/", ".")
		value, there := f.Host.Sysctls[file]
		state, remedy := "is 0", fmt.Sprintf("sysctl -w %s=1, and in /etc/sysctl.d", dotted)
		if !there {
			state = "is missing (the module br_netfilter is not loaded)"
			remedy = "modprobe br_netfilter, and in /etc/modules-load.d; then " + remedy
		}
		if value == "1" {
			continue
		}
		text := fmt.Sprintf("%s %s, and pods are ports of the bridge %s: what they send one another does not pass netfilter, "+
			"so that they do not reach a Service whose endpoint is on the same bridge", dotted, state, strings.Join(bridges, ", "))
		lines = append(lines, Line{Level: Fail, Evidence: text, Remedy: remedy})
	}
	if len(lines) > 0 || len(names) == 0 {
		return lines
	}
	slices.Sort(names)
	return good("what pods send one another by " + strings.Join(slices.Compact(names), ", ") + " passes netfilter")
}

// podBridges returns the bridges whose address of a family is in the network of pods: their network has an endpoint of
// this node, or they have an address in the ranges of pods. Not seen are bridges without an address, whose pods have
// another gateway, and those that have a setting of their own (nf_call_iptables).
func (f Facts) podBridges(family model.Family) (names []string) {
	ranges := slices.Clone(f.Wants.ClusterCIDRs)
	if f.Daemon != nil {
		ranges = append(ranges, f.Daemon.Node.PodCIDRs...)
	}
	for _, b := range f.Host.Bridges {
		ofPods := slices.ContainsFunc(b.Addrs, func(p netip.Prefix) bool {
			return model.FamilyOf(p.Addr()) == family && (slices.ContainsFunc(f.Wants.LocalPods, p.Contains) ||
				slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(p.Addr()) }))
		})
		if ofPods {
			names = append(names, b.Name)
		}
	}
	return names
}
