package explain

import (
	"net/netip"
	"slices"

	"github.com/vmapd/vmapd/model"
)

func (x *explainer) explainClient() {
	pods := x.family.Pods
	c := &x.e.Client
	c.Address, c.Interface = x.d.Source.String(), x.d.Interface
	c.PodRanges, c.PodInterface = texts(pods.CIDRs), pods.Interface
	c.Detection = detection(x.in.Config.LocalPods, pods)
	switch {
	case x.d.Node:
		c.Kind = "node"
	case x.d.FromPod:
		c.Kind = "pod"
	case !pods.Known(), pods.Interface != "" && c.Interface == "":
		c.Kind = "unknown"
	default:
		c.Kind = "notPod"
	}
	x.findPod(x.d.Source, func(s model.EndpointSlice, e model.SliceEndpoint) {
		c.EndpointOf = append(c.EndpointOf, s.String())
		c.PodNode = e.NodeName
	})
	c.Name = x.in.Client
	if c.Name == "" {
		if pod := x.in.Names.PodAt(x.d.Source); pod != "" {
			c.Name = "pod " + pod
		}
	}
	if !x.d.Node {
		c.OtherNode = x.nodeWith(x.d.Source)
	}
	c.OtherwiseIfPod = c.Kind == "unknown" && pods.Known() && x.otherwiseIfPod()
}

func detection(l model.LocalPods, p model.PodSources) string {
	switch {
	case !p.Known() && l.Mode == model.ByNodeCIDR:
		return "nodeCIDRUnset"
	case !p.Known():
		return "none"
	case p.Wildcard:
		return "interfacePrefix"
	case p.Interface != "":
		return "interface"
	case l.Mode == model.ByNodeCIDR:
		return "nodeCIDR"
	}
	return "clusterCIDR"
}

// otherwiseIfPod reports whether the result would differ for a connection that arrives by a
// pod's interface.
func (x *explainer) otherwiseIfPod() bool {
	c := x.d.Connection
	c.Interface = x.family.Pods.Interface
	o := model.Decide(x.snapshot, c)
	return o.Verdict != x.d.Verdict || !slices.Equal(o.Targets, x.d.Targets)
}

// findPod calls found for each endpoint that has an address, in any slice. If one does not terminate, it leaves
// out those that do: they are of an older pod.
func (x *explainer) findPod(a netip.Addr, found func(model.EndpointSlice, model.SliceEndpoint)) {
	for _, terminating := range []bool{false, true} {
		some := false
		for _, s := range x.in.Objects.EndpointSlices {
			for _, e := range s.Endpoints {
				if hasFirst(e, a) && isTerminating(e) == terminating {
					found(s, e)
					some = true
				}
			}
		}
		if some {
			return
		}
	}
}

// nodeWith returns the Node, other than ours, that has an address.
func (x *explainer) nodeWith(a netip.Addr) string {
	for _, n := range x.in.Objects.Nodes {
		if n.Name != x.in.Config.NodeName && hasAddr(n.Addresses, a) {
			return n.Name
		}
	}
	return ""
}

func isAddr(text string, a netip.Addr) bool {
	b, err := model.ParseAddr(text)
	return err == nil && b == a
}

func hasAddr(list []string, a netip.Addr) bool {
	return slices.ContainsFunc(list, func(s string) bool { return isAddr(s, a) })
}
