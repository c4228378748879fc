package explain

import (
	"fmt"
	"slices"

	"github.com/vmapd/vmapd/model"
)

// explainEnds says who the client is, as far as this node can tell, and which node decides.
func (x *explainer) explainEnds() {
	var of []string // the slices that have the client's address
	node := ""      // of its pod
	x.eachEndpoint(x.d.Source, func(s model.EndpointSlice, e model.SliceEndpoint) {
		of, node = append(of, s.String()), e.NodeName
	})
	client := x.sayClient()
	if len(of) > 0 {
		client += "; it is an endpoint in EndpointSlice " + firstFew(of)
		if node != "" {
			client += ", on " + node
		}
	}
	name := x.in.Client
	if pod := x.in.Names.PodAt(x.d.Source); name == "" && pod != "" {
		name = "pod " + pod
	}
	x.e.From = fmt.Sprintf("%s%s (%s)", before(name), x.e.Client, client)
	x.e.To = before(x.in.Server) + x.e.Dest
	ours := x.in.Config.NodeName
	x.e.On = ours + " (its Node object is missing, so its addresses and its zone are not known)"
	if n := x.ourNode(); n != nil {
		x.e.On = ours
		if n.Zone != "" {
			x.e.On += ", in zone " + n.Zone
		}
	}
	if x.d.Node {
		return
	}
	const other = "that node decides about its connections (--node-name %s), not %s."
	if node != "" && node != ours {
		x.next("%s is on %s: "+other, x.e.Client, node, node, ours)
	}
	if n := x.nodeWith(x.d.Source); n != "" {
		x.next("%s is the node %s: "+other, x.e.Client, n, n, ours)
	}
	if x.otherwiseIfPod() {
		x.next("If the client is a pod, the result differs: give the interface by which the connection arrives (--interface NAME).")
	}
}

func before(name string) string {
	if name == "" {
		return ""
	}
	return name + ", "
}

// ourNode returns the Node that decides, or nil.
func (x *explainer) ourNode() *model.Node {
	for i, n := range x.in.Objects.Nodes {
		if n.Name == x.in.Config.NodeName {
			return &x.in.Objects.Nodes[i]
		}
	}
	return nil
}

func (x *explainer) sayClient() string {
	pods, byNode := x.family.Pods, x.in.Config.LocalPods.Mode == model.ByNodeCIDR
	ranges, its := texts(pods.CIDRs), "the cluster's"
	if byNode {
		its = "this node's"
	}
	switch {
	case x.d.Node:
		return "a process of this node"
	case x.d.FromPod && pods.Interface != "":
		return "a pod: the connection arrives by the interface " + x.d.Interface
	case x.d.FromPod:
		return fmt.Sprintf("a pod: its address is in %s range %s", its, ranges)
	case !pods.Known() && byNode:
		return "possibly a pod: this Node has no spec.podCIDRs"
	case !pods.Known():
		return "possibly a pod: without --cluster-cidr, pods are not recognized"
	case pods.Interface != "" && x.d.Interface == "":
		return "treated as no pod: pods are recognized by their interface, and --interface was not given"
	case pods.Wildcard:
		return fmt.Sprintf("not a pod: pods' connections arrive by interfaces whose names begin with %s, and this one by %s",
			pods.Interface, x.d.Interface)
	case pods.Interface != "":
		return fmt.Sprintf("not a pod: pods' connections arrive by the interface %s, and this one by %s", pods.Interface, x.d.Interface)
	case byNode:
		return "not a pod of this node: its address is not in this node's range " + ranges
	}
	return "not a pod: its address is not in the cluster's range " + ranges
}

// otherwiseIfPod reports whether the client may be a pod, and whether the result would differ then.
func (x *explainer) otherwiseIfPod() bool {
	if !x.family.Pods.Known() || x.family.Pods.Interface == "" || x.d.Interface != "" || x.d.FromPod {
		return false
	}
	c := x.d.Connection
	c.Interface = x.family.Pods.Interface
	o := model.Decide(x.snapshot, c)
	return o.Verdict != x.d.Verdict || !slices.Equal(o.Targets, x.d.Targets)
}

// explainFrontend says which Service has the destination, and which others claim it without success.
func (x *explainer) explainFrontend() {
	said := ""
	dest, of := x.d.Dest, fmt.Sprintf("of Service %s, its unnamed port", x.e.Service)
	if port := x.d.Port.Name.Port; port != "" {
		of = fmt.Sprintf("of Service %s, port %q", x.e.Service, port)
	}
	switch {
	case dest.Addr().IsLoopback():
		said = fmt.Sprintf("%d/%v is the node port %s. On loopback, a listener of vmapd answers.", dest.Port(), x.d.Protocol, of)
	case x.d.Frontend.Kind == model.NodePort:
		said = fmt.Sprintf("%d/%v is the node port %s, and %v is an address of this node where node ports answer.",
			dest.Port(), x.d.Protocol, of, dest.Addr())
	default:
		said = fmt.Sprintf("%s is %s %s.", x.e.Dest, roleTexts[x.d.Frontend.Kind], of)
	}
	var lines []string
	for _, other := range x.in.Builder.Claimants(x.d.Frontend.VIP)[1:] {
		lines = append(lines, x.sayRival(other))
	}
	x.step(said, lines...)
}

// roleTexts name the role of an address in a Service.
var roleTexts = [...]string{
	model.ClusterIP: "the cluster IP", model.LoadBalancerIP: "a load-balancer address",
	model.ExternalIP: "an external IP", model.NodePort: "the node port",
}

func (x *explainer) sayRival(other model.ServicePortName) string {
	if other.NamespacedName == x.service.NamespacedName {
		return fmt.Sprintf("Its port %q claims the same address and port, but comes later in the list: it gets no connections here.", other.Port)
	}
	port, why := "", "is as old, and its name sorts first"
	if other.Port != "" {
		port = fmt.Sprintf(", port %q,", other.Port)
	}
	if x.serviceOf(other).Created.After(x.service.Created) {
		why = "is older"
	}
	return fmt.Sprintf("Service %v%s claims the same address and port, but %s %s: %v gets no connections here.",
		other.NamespacedName, port, x.e.Service, why, other.NamespacedName)
}

func (x *explainer) serviceOf(n model.ServicePortName) model.Service {
	for _, s := range x.in.Objects.Services {
		if s.NamespacedName == n.NamespacedName {
			return s
		}
	}
	return model.Service{}
}
