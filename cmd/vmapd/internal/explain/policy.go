package explain

import (
	"fmt"
	"strings"
	"time"

	"github.com/vmapd/vmapd/model"
)

func (x *explainer) explainSourceRanges() {
	fe, sp, list := x.d.Frontend, x.d.Port, x.service.SourceRanges
	if len(list) == 0 {
		return
	}
	if fe.Restricted {
		list = strings.Split(texts(sp.SourceRanges), ", ")
	}
	ranges := strings.Join(list[:min(len(list), maxRows)], ", ")
	if more := len(list) - maxRows; more > 0 {
		ranges += fmt.Sprintf(" and %d more", more)
	}
	self, is := "", "is"
	if sp.NodeAllowed {
		self = fmt.Sprintf(" and, because they include this node, %v itself", x.d.Dest.Addr())
	}
	if x.d.Why == model.SourceNotAllowed {
		is = "is not"
		x.next("Is %s the client's own address, or that of a NAT or load balancer on the path? spec.loadBalancerSourceRanges must include the address that this node sees.", x.e.Client)
	}
	switch {
	case !fe.Restricted && fe.Kind != model.LoadBalancerIP:
		x.step(fmt.Sprintf("loadBalancerSourceRanges (%s) apply to load-balancer addresses only, not to %s.", ranges, roleTexts[fe.Kind]))
	case !fe.Restricted:
		x.step(fmt.Sprintf("loadBalancerSourceRanges (%s) have no range of this IP family, so they do not apply to it.", ranges))
	case ranges == "":
		x.step("loadBalancerSourceRanges allow no client of this IP family: none of its ranges is valid, or they are too many (the budget sourceRanges).")
	default:
		x.step(fmt.Sprintf("loadBalancerSourceRanges allow only %s%s. %s %s among them.", ranges, self, x.e.Client, is))
	}
}

func (x *explainer) explainPolicy() {
	field, value := "externalTrafficPolicy", "Cluster"
	if x.d.Frontend.Kind == model.ClusterIP {
		field = "internalTrafficPolicy"
	}
	if x.d.Frontend.TrafficPolicy == model.Local {
		value = "Local"
	}
	const asIf = "the connection is treated as if it came through the load balancer to a node with endpoints: endpoints on any node may answer."
	said := "only endpoints on this node may answer."
	pods := x.family.Pods
	switch {
	case x.d.Why == model.FromPodInside:
		x.step(fmt.Sprintf("%s is %s, but the client is a pod: %s", field, value, asIf))
		return
	case x.d.Why == model.FromNodeInside, x.d.Why == model.LoopbackForwarder && x.d.Frontend.ShortCircuit:
		x.step(fmt.Sprintf("%s is %s, but the client is on this node: %s", field, value, asIf))
		return
	case value == "Cluster":
		said = "endpoints on any node may answer."
	case field == "externalTrafficPolicy" && !x.d.Node && !pods.Known():
		said += " Pods would be exempt, but this node cannot tell them from other clients."
	}
	x.step(fmt.Sprintf("%s is %s: %s", field, value, said))
	switch {
	case x.d.Why != model.NoLocalEndpoints:
	case field == "internalTrafficPolicy":
		x.next("A DaemonSet would have a pod on each node; with internalTrafficPolicy: Cluster, or trafficDistribution: PreferSameNode, pods on other nodes answer.")
	default:
		x.next("A load balancer should not send connections to a node without endpoints: does it check healthCheckNodePort?")
		x.next("With externalTrafficPolicy: Cluster, pods on other nodes answer, and see this node's address as the source.")
	}
}

// explainChoice says how one of the endpoints is chosen.
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
		how = fmt.Sprintf("sessionAffinity is ClientIP: a client whose last connection was at most %v ago gets the same endpoint again, if it is still one of them. Otherwise: %s",
			affinity.Truncate(time.Second), lowerFirst(how))
	}
	x.step(how)
}

func lowerFirst(s string) string { return strings.ToLower(s[:1]) + s[1:] }

// explainSourceAddress describes the source address that the endpoints see.
func (x *explainer) explainSourceAddress() {
	var order []model.SNATReason
	addrs := map[model.SNATReason][]string{}
	for _, t := range x.d.Targets {
		if addrs[t.SNAT] == nil {
			order = append(order, t.SNAT)
		}
		addrs[t.SNAT] = append(addrs[t.SNAT], t.Addr.String())
	}
	if len(order) == 1 {
		x.step(x.saySNAT(order[0]))
		return
	}
	var lines []string
	for _, reason := range order {
		lines = append(lines, someOf(addrs[reason])+": "+lowerFirst(x.saySNAT(reason)))
	}
	x.step("The source address, as the endpoints see it:", lines...)
}

// snatTexts have the client's address in place of {client}.
var snatTexts = [...]string{
	model.KeepSource:      "The source address stays: the endpoint sees {client}.",
	model.OnNode:          "The source address stays {client}: the endpoint is in this node's own network.",
	model.Hairpin:         "The source address becomes this node's: the endpoint is the client itself, and its replies must come back through the node.",
	model.EveryClusterIP:  "The source address becomes this node's: with --masquerade-all, that applies to every cluster IP.",
	model.OffCluster:      "The source address becomes this node's: {client} is not recognized as a pod, and replies must come back through this node.",
	model.ExternalCluster: "The source address becomes this node's: externalTrafficPolicy is Cluster, and replies must come back through this node.",
	model.FromNode:        "The source address becomes this node's: a process of this node may use an address to which other machines cannot reply.",
	model.ByForwarder:     "The endpoint sees this node's address: the listener opens a connection of its own.",
}

func (x *explainer) saySNAT(reason model.SNATReason) string {
	text := strings.ReplaceAll(snatTexts[reason], "{client}", x.e.Client)
	if reason == model.KeepSource && !x.family.Pods.Known() && !x.d.Node && x.d.Frontend.Kind == model.ClusterIP {
		text += " If the client is not a pod, replies may not find their way back: this node cannot tell pods from other clients."
	}
	return text
}
