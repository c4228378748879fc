package ipvs

import (
	"net/netip"
	"slices"

	"github.com/vmapd/vmapd/model"
)

// Differences lists those from nftables that concern single new connections without a history.
var Differences = []model.Difference{
	{
		What:     "a connection from the node itself to a port without endpoints gets an ICMP error and no TCP reset",
		Concerns: refusedToNode,
	},
	{What: "on a load balancer's or external address, ports that no Service has are refused, and neither routed " +
		"on nor, inside a ServiceCIDR, dropped", Concerns: otherPortOfExternal},
	{What: "connections from an address of the dummy device are always masqueraded", Concerns: fromServiceAddr},
	{
		What:     "an external or load-balancer address that is a pod's cuts the pod off from the node",
		Concerns: withTakenAddr,
	},
	{What: "through an external or load-balancer address or a node port with externalTrafficPolicy Local, pods " +
		"and the node reach only endpoints on this node, as long as there is one", Concerns: shortCircuited},
}

// In the output path, IPVS comes before the table filter, and answers for a virtual server without real servers that
// still has connections. For the node's own processes it is the same ECONNREFUSED, and on loopback no limit of ICMP
// errors applies.
func refusedToNode(_ *model.FamilySnapshot, d model.Decision) bool {
	return d.Verdict == model.Rejected && d.Why == model.NoEndpoints && d.Node && d.Protocol == model.TCP
}

// IPVS only sees packets for the node itself, so the address must be one of the node's: without the refusal, all of its
// sockets would be reachable there.
func otherPortOfExternal(s *model.FamilySnapshot, d model.Decision) bool {
	return (d.Verdict == model.NotOurs || d.Why == model.UnallocatedAddr) && onDevice(s, d.Dest.Addr())
}

// The kernel uses such an address as the source of the node's connections to it, and no other machine could reply to
// that.
func fromServiceAddr(s *model.FamilySnapshot, d model.Decision) bool {
	return d.Verdict == model.Forwarded && onDevice(s, d.Source)
}

// A virtual server has one list of real servers; kube-proxy's mode ipvs does the same.
func shortCircuited(_ *model.FamilySnapshot, d model.Decision) bool {
	return (d.Why == model.FromPodInside || d.Why == model.FromNodeInside) && d.Frontend.Action == model.Forward
}

// The kernel routes packets to a pod with an address of the node into the node, and drops those from it.
func withTakenAddr(s *model.FamilySnapshot, d model.Decision) bool {
	toTaken := func(t model.Target) bool { return onDevice(s, t.Addr.Addr()) }
	return !d.Node && onDevice(s, d.Source) || slices.ContainsFunc(d.Targets, toTaken)
}

// onDevice reports whether an address is the node's only because a Service has it.
func onDevice(s *model.FamilySnapshot, a netip.Addr) bool {
	if slices.Contains(s.NodeAddrs, a) {
		return false
	}
	if s.IsClusterIP(a) {
		return true
	}
	for sp := range s.ServicePorts() {
		if slices.ContainsFunc(sp.Frontends, func(fe model.Frontend) bool { return fe.VIP.Addr == a }) {
			return true
		}
	}
	return false
}
