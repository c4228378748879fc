// Package nft compiles a model.Snapshot into nftables: a [Ruleset] per IP family,
// the difference between two of them as a [Batch], and both as text.
//
//	model.FamilySnapshot ──Compile──> Ruleset ──Diff──> Batch ──> nft/kernel
//	                                     │                │
//	                                   String()        String()
//
// # The packet's way
//
// All chains hook NAT, so only the first packet of a connection meets a rule. No
// packet mark and no conntrack mark is read or written.
//
//	prerouting (dstnat)    output (-100)
//	            └──────┬──────┘
//	               services
//	                   │ address . protocol . port ── map service-ips ─────────┐
//	                   │ node address? protocol . port ── map service-nodeports ┤
//	                   │ cluster IP, other port ──> reject-chain                │
//	                   │ inside a ServiceCIDR ──> drop                          │
//	                   ▼                                                        ▼
//	                not ours             reject-chain, drop, endpoints-N, nodeport-endpoints-N
//	                                               │ random slot below N, map endpoints: DNAT
//	                                               ▼
//	          postrouting (srcnat): hairpin, then map source-nat: masquerade or not
//
// # Why maps
//
// The number of chains and sets does not grow with the cluster: a Service is a few
// elements of maps that all Services share, and a chain depends only on how many
// endpoints there are to choose from. The kernel walks all sets and chains of a table
// for each of them, so anything per Service would cost the square of the cluster.
package nft
