package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/model"
)

// explainEnds says who the client is, as far as this node knows, and which node decides.
func (x *explainer) explainEnds() {
	name, ours, node := x.in.Client, x.in.Config.NodeName, ""
	if n := x.in.Objects.NodeAt(x.d.Source); n != nil {
		node = n.Name
	}
	for _, e := range x.in.Objects.At(x.d.Source) {
		node = cmp.Or(e.NodeName, node)
	}
	if x.e.Pod = x.in.Objects.PodAt(x.d.Source); name == "" && x.e.Pod != "" {
		name = "pod " + x.e.Pod
	}
	x.e.From = strings.TrimPrefix(fmt.Sprintf("%s, %s (%s)", name, x.e.Client, x.sayClient()), ", ")
	x.e.To, x.e.On = strings.TrimPrefix(x.in.Server+", "+x.e.Dest, ", "), ours
	switch {
	case x.node == nil:
		x.e.On += " (its Node object is missing, so its addresses and its zone are not known)"
	case x.node.Zone != "":
		x.e.On += ", in zone " + x.node.Zone
	}
	here := slices.Contains(x.family.NodeAddrs, x.d.Dest.Addr()) // packets to them are decided where they arrive
	if !x.d.Node && node != "" && node != ours && !here {
		x.next("%s is on %s: that node decides about its connections (--node-name %[2]s), not %s.",
			x.e.Client, node, ours)
	}
}

func (x *explainer) sayClient() string {
	pods, byNode := x.family.Pods, x.in.Config.LocalPods.Mode == model.ByNodeCIDR
	ranges, by := "the cluster's range "+report.List(pods.CIDRs, 0), pods.Interface
	if byNode {
		ranges = "this node's range " + report.List(pods.CIDRs, 0)
	}
	if pods.Wildcard {
		by += "*"
	}
	switch {
	case x.d.Node:
		return "a process of this node"
	case x.d.FromPod && by != "":
		return "a pod: the connection arrives by the interface " + x.d.Interface
	case x.d.FromPod:
		return "a pod: its address is in " + ranges
	case !pods.Known() && byNode:
		return "possibly a pod: this Node has no spec.podCIDRs"
	case !pods.Known():
		return "possibly a pod: without --cluster-cidr, pods are not recognized"
	case by != "" && x.d.Interface == "":
		return "treated as no pod: pods are recognized by their interface, and --interface was not given"
	case by != "":
		const text = "not a pod: pods' connections arrive by the interface %s, and this one by %s"
		return fmt.Sprintf(text, by, x.d.Interface)
	}
	return "not a pod: its address is not in " + ranges
}
