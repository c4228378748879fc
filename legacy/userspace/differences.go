package userspace

import (
	"net/netip"
	"slices"

	"github.com/vmapd/vmapd/model"
)

// A Difference describes different behaviour of the userspace and the nftables backends.
type Difference struct {
	What string
	Why  string
	// Concerns reports whether a decision of the model is carried out otherwise; nil if no single
	// new connection without a history is concerned, but for the source that its endpoint sees.
	Concerns func(s *model.FamilySnapshot, d model.Decision) bool
}

// Differences lists all known differences.
var Differences = []Difference{
	{
		What: "endpoints see an address of the node as the source of every connection",
		Why:  "a connection to an endpoint is one of vmapd's own",
	},
	{
		What: "connections last only as long as vmapd runs, and new ones are refused until it runs again",
		Why:  "every byte passes the process",
	},
	{
		What: "a TCP client is connected before an endpoint is: if none accepts, the connection is reset and not refused",
		Why:  "a listener's connection is complete when the program hears of it",
	},
	{
		What: "without CAP_NET_ADMIN, Services answer only on addresses that the node has, and without CAP_NET_BIND_SERVICE " +
			"only on ports from 1024 on (net.ipv4.ip_unprivileged_port_start)",
		Why: "to add an address needs that capability; node ports need none",
	},
	{
		What: "on the address of a Service, ports that no Service has are refused, and neither routed on nor, inside a " +
			"ServiceCIDR, dropped; a process of the node that listens on all addresses answers there",
		Why:      "the address must be one of the node's, and nothing stands before the node's own sockets",
		Concerns: otherPort,
	},
	{
		What:     "a Service without endpoints refuses also the sources that loadBalancerSourceRanges exclude",
		Why:      "only the kernel can refuse, by having no listener, and then it refuses everybody",
		Concerns: refusedAndRestricted,
	},
	{
		What: "with pods that are told by their interface, a TCP connection from outside to externalTrafficPolicy Local " +
			"without an endpoint on the node is reset and not dropped",
		Why:      "the filter of a socket sees addresses, and no interfaces",
		Concerns: resetByInterface,
	},
	{
		What: "where the process may not attach a filter to a socket, a TCP connection that is to be dropped is reset",
		Why:  "the kernel has accepted it before the program hears of it; some kernels refuse filters of ordinary users",
	},
	{
		What: "an external or load-balancer address that is a pod's is not served",
		Why:  "as an address of the node, it would cut off the pod",
		Concerns: func(s *model.FamilySnapshot, d model.Decision) bool {
			return d.Frontend != nil && d.Frontend.Kind != model.NodePort && !slices.Contains(s.NodeAddrs, d.Dest.Addr()) &&
				!addable(s, d.Dest.Addr(), d.Frontend.Kind)
		},
	},
	{
		What: "an endpoint at the address and port of another Service, or of the same one, is never used",
		Why:  "vmapd would connect to itself, for ever; rules in the kernel translate a packet once, so that it reaches nobody",
		Concerns: func(s *model.FamilySnapshot, d model.Decision) bool {
			return slices.ContainsFunc(d.Targets, func(t model.Target) bool { return isPlace(s, t.Addr, d.Protocol) })
		},
	},
	{
		What: "a process of the node that has an address and port keeps it, and none can take one that a Service has",
		Why:  "two sockets can't listen on the same; --refuse-node-addresses keeps Services off the node's addresses",
	},
	{
		What: "an association of SCTP has one address and 64 streams at most at each end, and one with a message of more than 256 KiB " +
			"is aborted",
		Why: "vmapd makes an association of its own to the endpoint, and copies messages from one to the other",
	},
	{
		What:     "with pods that are told by their interface, a client of SCTP is from outside",
		Why:      "the kernel tells the interface of an association to no program",
		Concerns: sctpByInterface,
	},
	{
		What: "DropInvalid and masqueradeAll have no effect",
		Why:  "there is no connection tracking, and no rule",
	},
}

func otherPort(s *model.FamilySnapshot, d model.Decision) bool {
	return (d.Verdict == model.NotOurs || d.Why == model.UnallocatedAddr) && onDevice(s, d.Dest.Addr())
}

// onDevice reports whether an address is the node's only because a Service has it.
func onDevice(s *model.FamilySnapshot, a netip.Addr) bool {
	for sp := range s.ServicePorts() {
		if slices.Contains(serviceAddrs(s, sp), a) {
			return true
		}
	}
	return false
}

func refusedAndRestricted(_ *model.FamilySnapshot, d model.Decision) bool {
	return d.Why == model.SourceNotAllowed && d.Frontend.Action == model.Reject
}

func resetByInterface(s *model.FamilySnapshot, d model.Decision) bool {
	return d.Why == model.NoLocalEndpoints && d.Frontend.ShortCircuit && s.Pods.Interface != "" && d.Protocol == model.TCP
}

func sctpByInterface(s *model.FamilySnapshot, d model.Decision) bool {
	return d.Protocol == model.SCTP && s.Pods.Interface != "" && d.Frontend != nil && d.Frontend.ShortCircuit
}

func isPlace(s *model.FamilySnapshot, a netip.AddrPort, p model.Protocol) bool {
	for sp := range s.ServicePorts() {
		for _, at := range Places(s, sp, Everything) {
			if at.VIP == (model.VIP{Addr: a.Addr(), Protocol: p, Port: a.Port()}) {
				return true
			}
		}
	}
	return false
}
