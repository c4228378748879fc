package explain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/model"
)

// explainEnds says who the client is, as far as this node knows, and which node decides.
func (x *explainer) explainEnds() {
	name, ours, node := x.in.Client, x.in.Config.NodeName, ""
	if n := x.in.Objects.NodeAt(x.d.Source); n != nil {
		node = n.Name
	}
	for _, e := range x.in.Objects.ByAddress()[x.d.Source] {
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
	pods := x.family.Pods
	by := "addresses in " + report.List(pods.CIDRs, 0)
	if pods.Interface != "" {
		by = "the interface " + pods.Interface + map[bool]string{true: "*"}[pods.Wildcard] + " (--interface)"
	}
	switch {
	case x.d.Node:
		return "a process of this node"
	case !pods.Known():
		return "possibly a pod: no range of pods is known (--cluster-cidr, or the Node's spec.podCIDRs)"
	case x.d.FromPod:
		return "a pod, recognized by " + by
	}
	return "not a pod: those are recognized by " + by
}

var roleTexts = [...]string{
	model.ClusterIP: "the cluster IP", model.LoadBalancerIP: "a load-balancer address",
	model.ExternalIP: "an external IP", model.NodePort: "the node port",
}

// explainFrontend says to which Service the destination belongs, and which others claim it.
func (x *explainer) explainFrontend() {
	for _, other := range x.in.Builder.Claimants(x.d.Frontend.VIP) {
		if other == x.d.Port.Name {
			continue
		}
		x.line("Service %v, port %q, claims the same address and port, but %s is older, or has the first name: "+
			"it gets no connections here.", other.NamespacedName, other.Port, x.e.Service)
	}
	x.step("%s is %s of Service %s, %s.", x.e.Dest, roleTexts[x.d.Frontend.Kind], x.e.Service, x.portText())
}

func (x *explainer) explainSourceRanges() {
	if !x.d.Frontend.Restricted {
		return
	}
	is := "is"
	if x.d.Why == model.SourceNotAllowed {
		is = "is not"
		x.next("Is %s the client's own address, or that of a NAT or load balancer on the path? "+
			"spec.loadBalancerSourceRanges must include the address that this node sees.", x.e.Client)
	}
	ranges := cmp.Or(report.List(x.d.Port.SourceRanges, 0), "(no valid range)")
	x.step("loadBalancerSourceRanges allow only %s. %s %s among them.", ranges, x.e.Client, is)
}

func (x *explainer) explainPolicy() {
	field, value, said := "externalTrafficPolicy", "Cluster", "endpoints on any node may answer."
	if x.d.Frontend.Kind == model.ClusterIP {
		field = "internalTrafficPolicy"
	}
	if x.d.Frontend.TrafficPolicy == model.Local {
		value = "Local"
	}
	isLoopback := x.d.Why == model.LoopbackForwarder && x.d.Frontend.ShortCircuit
	switch {
	case x.d.Why == model.FromPodInside, x.d.Why == model.FromNodeInside, isLoopback:
		value += ", but the client is a pod or this node, as if it came through a load balancer to a node with endpoints"
	case value == "Local":
		said = "only endpoints on this node may answer."
	}
	x.step("%s is %s: %s", field, value, said)
	if x.d.Why == model.NoLocalEndpoints {
		x.next("With %s: Cluster, pods on other nodes answer. With Local, a DaemonSet has a pod on each node, and a load "+
			"balancer should not send connections to others: does it check healthCheckNodePort?", field)
	}
}

func (x *explainer) explainChoice() {
	how := map[model.Algorithm]string{
		model.Random:     "One of them is chosen at random for each connection.",
		model.Maglev:     "A lookup table has one of them for the client's address, the same on all nodes.",
		model.MaglevPort: "A lookup table has one of them for the client's address and port, the same on all nodes.",
	}[x.d.Port.Algorithm]
	if t, ok := x.d.Chosen(); ok && x.d.Port.Algorithm.HasTable() {
		how += fmt.Sprintf(" With the backend nftables, it is %v.", t.Addr)
	}
	switch affinity := x.d.Port.Affinity; {
	case len(x.d.Targets) == 1:
		how = "The only usable endpoint is chosen."
	case x.d.Why == model.LoopbackForwarder:
		how = "The listener chooses one of them for each connection."
	case affinity > 0:
		how = fmt.Sprintf("sessionAffinity is ClientIP: a client that connected within the last %v gets the "+
			"same endpoint again, if it is still one of them. Otherwise: %s",
			affinity.Truncate(time.Second), strings.ToLower(how[:1])+how[1:])
	}
	if after := x.d.Port.RetryAfter; after > 0 && len(x.d.Targets) > 1 && !x.e.Listener {
		x.line("Without an answer within %v, the kernel chooses another endpoint (backend nftables).", after)
	}
	x.step("%s", how)
}

func (x *explainer) explainSourceAddress() {
	addrs := map[model.SNATReason][]string{}
	for _, t := range x.d.Targets {
		addrs[t.SNAT] = append(addrs[t.SNAT], t.Addr.String())
	}
	for _, reason := range slices.Sorted(maps.Keys(addrs)) {
		where, verb := "", "stays "+x.e.Client
		if len(addrs) > 1 {
			where = someOf(addrs[reason]) + ": "
		}
		if reason.Masquerade() {
			verb = "becomes this node's"
		}
		x.step("%sThe source address %s%s.", where, verb, snatTexts[reason])
	}
}

// snatTexts say why the endpoint sees the client's address, or this node's.
var snatTexts = [...]string{
	model.KeepSource:      ": the endpoint sees it",
	model.OnNode:          ": the endpoint is in this node's own network",
	model.Hairpin:         ": the endpoint is the client itself, and its replies must come back through the node",
	model.EveryClusterIP:  ": with --masquerade-all, that applies to every cluster IP",
	model.OffCluster:      ": the client is not recognized as a pod, and replies must come back through this node",
	model.ExternalCluster: ": externalTrafficPolicy is Cluster, and replies must come back through this node",
	model.FromNode:        ": a process of this node may use an address to which other machines cannot reply",
	model.ByForwarder:     ": the listener opens a connection of its own",
}
