package ipvs

import (
	"net/netip"
	"slices"

	"github.com/vmapd/vmapd/model"
)

// A Difference describes different behaviour of the IPVS and the nftables backends.
type Difference struct {
	What string
	Why  string
	// Concerns reports whether a decision of the model is carried out otherwise; nil if no single
	// new connection without a history is concerned.
	Concerns func(s *model.FamilySnapshot, d model.Decision) bool
}

// Differences lists all known differences.
var Differences = []Difference{
	{
		What: "the node itself learns by an ICMP error, not by a TCP reset, that a port has no endpoints",
		Why: "in the output path IPVS comes before the filter table, and answers for a virtual server without real servers " +
			"that still has connections; for the node's own processes it is the same ECONNREFUSED, and on loopback no " +
			"limit of ICMP errors applies",
		Concerns: refusedToNode,
	},
	{
		What: "on a load balancer's or external address, ports that no Service has are refused, and neither routed on " +
			"nor, inside a ServiceCIDR, dropped",
		Why: "IPVS only sees what is for the node itself, so the address must be one of the node's; to let the rest in would " +
			"publish whatever listens on the node",
		Concerns: otherPortOfExternal,
	},
	{
		What: "connections from an address of the dummy device are masqueraded always",
		Why: "the kernel takes such an address as the source of a connection of the node's to it, and no other machine " +
			"could reply to that; from elsewhere, no kernel accepts one of its own addresses as a source",
		Concerns: fromServiceAddr,
	},
	{
		What: "the algorithm random is what Options.Scheduler says",
		Why:  "IPVS has no scheduler that chooses at random",
	},
	{
		What: "session affinity is kept for each frontend alone, and its time runs anew with each connection that ends",
		Why:  "persistence belongs to a virtual server",
	},
	{
		What: "with session affinity and externalTrafficPolicy Local, pods and the node come back to an endpoint only as " +
			"long as the endpoints stay the same",
		Why: "a persistent virtual server with a mark does not translate ports (ip_vs_sched_persist), so the client's address " +
			"is hashed instead",
	},
	{
		What: "a frontend that goes takes its connections with it",
		Why:  "a virtual server is deleted with its real servers, and nothing delivers packets to an address that is gone",
	},
	{
		What: "with the scheduler dh, endpoints that go take their connections with them",
		Why:  "it refuses everybody whom its table sends to a real server of weight 0",
	},
	{
		What: "DropInvalid does not drop what clients send to a cluster IP",
		Why:  "IPVS translates by its own table, whatever connection tracking makes of a packet",
	},
	{
		What: "established connections are accepted in the FORWARD chain, and pass no later rule there",
		Why:  "kube-proxy does so, and there are nodes whose FORWARD policy is to drop that rely on it for replies",
	},
	{
		What: "packet marks are used: a bit, and the values that begin with a byte of ours",
		Why:  "a virtual server has one list of real servers, and a mark is the one other thing that it can be found by",
	},
	{
		What: "endpoints change one after the other, and not all at once",
		Why:  "IPVS has no transactions; each step on the way is safe (Plan)",
	},
}

func refusedToNode(_ *model.FamilySnapshot, d model.Decision) bool {
	return d.Verdict == model.Rejected && d.Why == model.NoEndpoints && d.Node && d.Protocol == model.TCP
}

func otherPortOfExternal(s *model.FamilySnapshot, d model.Decision) bool {
	return (d.Verdict == model.NotOurs || d.Why == model.UnallocatedAddr) && onDevice(s, d.Dest.Addr())
}

func fromServiceAddr(s *model.FamilySnapshot, d model.Decision) bool {
	return d.Verdict == model.Forwarded && onDevice(s, d.Source)
}

// onDevice reports whether an address is the node's only because a Service has it.
func onDevice(s *model.FamilySnapshot, a netip.Addr) bool {
	if slices.Contains(s.NodeAddrs, a) {
		return false
	}
	for clusterIP := range s.ClusterIPs() {
		if clusterIP == a {
			return true
		}
	}
	for sp := range s.ServicePorts() {
		if slices.ContainsFunc(sp.Frontends, func(fe model.Frontend) bool { return fe.VIP.Addr == a }) {
			return true
		}
	}
	return false
}
