// Package ipvs compiles a model.FamilySnapshot for IPVS, the kernel's virtual servers, on
// kernels without nftables: a [State] per IP family, and the difference between two
// of them as a [Plan], a list of operations in an order in which every step is safe.
//
//	model.FamilySnapshot ──Compile──> State ──Diff──> Plan ──> legacy/host
//	                                    │               │
//	                                 String()        String()
//
// # Packet flow
//
// Services' addresses are on a dummy device of the node: IPVS only sees packets that are for the node itself. New
// connections first meet the [Rules], iptables rules that depend on the settings alone and look into ipsets:
//
//	nat PREROUTING, OUTPUT
//	      │ ADDRS and SERVICES ──> no other rule of nat
//	mangle INPUT, OUTPUT
//	      │ RESTRICTED, and not from SOURCES ──> drop
//	      │ DROP, or DROP-OUTSIDE and neither from a pod nor from the node ──> drop
//	      │ MASQUERADE, MASQUERADE-NODE and from the node, or MASQUERADE-OUTSIDE and no pod: the masquerade mark
//	filter FORWARD, OUTPUT (mangle OUTPUT: of ADDRS alone)
//	      │ in a ServiceCIDR, and not on the device ──> drop
//	filter INPUT (OUTPUT: only what IPVS has not taken)
//	      │ REJECT, or an address of ADDRS that is not in SERVICES with its port ──> refuse
//	IPVS  │ a virtual server by address, protocol and port
//	      ▼
//	nat POSTROUTING: marked, from ADDRS, or an endpoint to itself (HAIRPIN) ──> masquerade
//
// # One list of endpoints
//
// A virtual server has one list of real servers, for all clients. With externalTrafficPolicy Local, that is the
// endpoints on this node or, if there is none, those of the cluster: then pods and the node get these, and others
// are dropped (DROP-OUTSIDE). The masquerade bit is the only one of the packet mark that is written.
package ipvs
