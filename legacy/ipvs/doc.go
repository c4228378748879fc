// Package ipvs compiles a model.FamilySnapshot for IPVS, the kernel's virtual servers, on
// nodes whose kernel has no nftables: a [State] per IP family, and the difference between two
// of them as a [Plan], a list of operations in an order in which every step is safe.
//
//	model.FamilySnapshot ──Compile──> State ──Diff──> Plan ──> legacy/host
//	                                    │               │
//	                                 String()        String()
//
// # The packet's way
//
// Services' addresses are on a dummy device of the node: IPVS only sees packets that are for the
// node itself. New connections first meet the [Companion], iptables rules that depend on the
// settings alone and look into ipsets:
//
//	nat PREROUTING, OUTPUT
//	      │ ADDRS and SERVICES ──> no other rule of nat
//	mangle INPUT, OUTPUT
//	      │ RESTRICTED, and not from SOURCES ──> drop
//	      │ MASQUERADE, or MASQUERADE-OUTSIDE and no pod: the masquerade mark
//	      │ INSIDE, and from a pod or the node: a mark of the service port's own
//	      │ DROP, and not marked so ──> drop
//	filter FORWARD, OUTPUT (mangle OUTPUT: of ADDRS alone)
//	      │ in a ServiceCIDR, and not on the device ──> drop
//	filter INPUT (OUTPUT: only what IPVS has not taken)
//	      │ REJECT, or an address of ADDRS that is not in SERVICES with its port ──> refuse
//	IPVS  │ a virtual server by the mark, or else by address, protocol and port
//	      ▼
//	nat POSTROUTING: marked, from ADDRS, or an endpoint to itself (HAIRPIN) ──> masquerade
//
// # Two lists of endpoints
//
// With externalTrafficPolicy Local, pods and the node are sent to all endpoints and others
// to those on this node, but a virtual server has one list of real servers. The
// kernel looks for a virtual server by packet mark before it does by address, so a service port
// with such frontends has another one with a mark. The marks stand not in rules (one for each
// Service) but in the ipset INSIDE, whose entries carry a mark each (extension skbinfo, Linux
// 3.19) that the target SET --map-mark gives to packets.
//
// # Why the order matters
//
// Neither IPVS nor ipset has transactions. What a frontend needs is there before
// the last step that leads packets to it, and goes after the first step that keeps packets away;
// see phase. [Differences] lists every difference from nftables.
package ipvs
