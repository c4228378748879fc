// Package iptables compiles a model.FamilySnapshot into rules for iptables, on nodes whose
// kernel has no nftables: a [Ruleset] per IP family, the difference between two of them as a
// [Batch], and both as text for iptables-restore --noflush, of the variants legacy and nft.
//
//	model.FamilySnapshot ──Compile──> Ruleset ──Diff──> Batch
//	                                     │                │
//	                                   String()         Text()
//
// # The packet's way
//
// In the table nat only the first packet of a connection meets a rule, in the table filter
// all do that are new.
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
// in the cluster, L that of those on this node; VMAPD-RC-x and RL-x find a client's endpoint
// of before; C-x-0 to C-x-f are groups of more than 32 endpoints.
//
// # Why trees
//
// kube-proxy has one rule after the other for all Services, and a connection meets half of
// them. Here, trees of chains (tree.go) lead to the few rules about addresses with the same
// last three digits. What a chain of theirs contains does not depend on any other address,
// and a service port's chains do not depend on any other service port. A change rewrites only
// the chains that it concerns, and those above only if a chain appears or disappears.
//
// # Differences from nftables
//
// A single new connection without a history is never concerned: it always goes where
// model.Decide says.
//
//   - The algorithm source-hash chooses at random, since no match hashes a source address; a
//     client comes back to its endpoint only with session affinity.
//   - Round-robin begins anew when rules are written, since the state of a statistic match is
//     the rule's, and the legacy variant replaces all rules of a table at once. Among more than
//     32 endpoints it goes round only within a group of them.
//   - Session affinity is kept for the last 100 clients of an endpoint (ip_list_tot of
//     xt_recent).
//   - A client that was sent to different endpoints by frontends with different traffic
//     policies comes back to any of them: each endpoint has its own list of clients.
//   - With session affinity, a new connection passes a rule for each endpoint, since a rule
//     looks into one list.
//   - A connection is refused after it was routed, since in the nat table nothing can be
//     refused; without a route to the address its client learns that there is none.
//   - While a batch is applied, a connection may for a moment be refused instead of forwarded,
//     or the reverse: each table comes into force for itself.
//   - DropInvalid drops all INVALID packets that are forwarded, also those that belong to no
//     Service: otherwise every such packet would meet one rule for each endpoint, and every new
//     pod would add a rule.
//   - A bit of the packet mark is used, since only the nat rule that chooses knows by which
//     frontend a connection came.
//   - Forwarded packets that are marked, or established, are accepted, and pass no later rule of
//     the FORWARD chain: kube-proxy does so, and nodes with a FORWARD policy of DROP rely on it.
package iptables
