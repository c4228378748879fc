// Package iptables compiles a model.FamilySnapshot into rules for iptables, on kernels
// without nftables: a [Ruleset] per IP family, the difference between two of them as a
// [Batch], and both as text for iptables-restore --noflush, of the variants legacy and nft.
//
//	model.FamilySnapshot ──Compile──> Ruleset ──Diff──> Batch
//	                                     │                │
//	                                   String()         Text()
//
// # Packet flow
//
// In the table nat only the first packet of a connection meets a rule, in the table filter all do that are new.
//
//	nat:    PREROUTING            OUTPUT
//	             └────────┬──────────┘
//	               VMAPD-SERVICES ··> VMAPD-IP-029: address, protocol, port
//	                      │           VMAPD-NODEPORTS ··> VMAPD-TCP-753: protocol, port
//	                      │           ├─ cluster IP ─────────────────────────┐
//	                      │           ├─ other ── VMAPD-E-x: mark, which list?┤
//	                      │           ├─ restricted ── VMAPD-F-x, then E-x ──┤
//	                      ▼           └─ has no endpoint: ACCEPT             ▼
//	                   not ours                                VMAPD-C-x or VMAPD-L-x: mark what
//	                      │                                    is not from pods, choose, DNAT
//	filter: INPUT, FORWARD, OUTPUT ◄────────────────────────────────────────┘
//	                      │
//	                VMAPD-FILTER: has an endpoint (DNAT)? go on
//	                      │  VMAPD-SERVICES ··> VMAPD-IP-029 ──> VMAPD-REJECT, VMAPD-DROP-OUTSIDE,
//	                      │      DROP, VMAPD-F-x; node ports likewise; other ports of a cluster IP
//	                      │  in a ServiceCIDR: DROP
//	nat:    POSTROUTING   ▼
//	                VMAPD-POSTROUTING: marked? clear the mark, MASQUERADE
//	                      └─ an endpoint to itself (VMAPD-HAIRPIN-29)? MASQUERADE
//
// x stands for a service port: 16 characters of a hash of its name. C is the list of endpoints
// in the cluster, L that of those on this node.
//
// # Why trees
//
// kube-proxy has one rule after the other for all Services, and a connection meets half of them. Here, trees of chains
// (tree.go) lead to the few rules about addresses with the same last three digits. A change rewrites only the chains
// that it concerns, and those above only if a chain appears or disappears.
//
// Rules of different tables can't be exchanged together: while a batch is applied, a connection may for a moment
// be refused instead of forwarded, or the reverse. A single new connection without a history always goes where
// model.Decide says.
package iptables
