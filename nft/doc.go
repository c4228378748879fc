// Package nft has the values of an nftables table, and their text: sets, chains, elements, rules.
// The packages below it refer in one direction:
//
//	nft           values and text: Set, Chain, Rule, Element, Table
//	nft/compile   model.FamilySnapshot ──Compile──> Ruleset, for one IP family
//	nft/batch     two Rulesets ──Diff──> Batch; a Table and a Ruleset ──Pieces──> Batches
//	nft/kernel    Batch ──> messages ──> kernel; what is in the kernel ──> Table
//
// nft/nftsim runs packets through a Table, and nft/nftfake is a kernel in memory: both are for tests.
//
// # Packet flow
//
// The chains hook NAT, so only the first packet of a connection meets a rule. Others pass one rule if a service port
// has affinity, and one more with affinity or Maglev if connections are retried (compile/retry.go). Forwarded packets
// pass one if connections are retried, two with Settings.DropInvalid, and one with compile.Options.FastPath, until the
// connection takes the fast path past all chains (compile/usage.go). No packet mark and no conntrack mark is read or
// written.
//
//	prerouting (dstnat - 1)    output (-101)
//	            └──────┬──────┘
//	               services
//	                   │ firewall-ips, but not in source-ranges-… ──> drop
//	                   │ service-counters, nodeport-counters, if wanted: one more
//	                   │ affinity-ips: a client that was here before ──> DNAT to its endpoint
//	                   │ address . protocol . port ── map service-ips ──────────┐
//	                   │ node address? protocol . port ── map service-nodeports ┤ (affinity as above)
//	                   ▼                                                        ▼
//	        other programs at dstnat      reject-chain, drop, endpoints-…, local-endpoints-…, local-…
//	                   │                       │ a slot, map endpoints: DNAT
//	prerouting-rest (dstnat + 5)               │
//	    output-rest (-95)                      │
//	                   └─ cluster-ips-check    │
//	                        │ cluster IP, other port ──> reject-chain
//	                        │ inside a ServiceCIDR ──> drop
//	                        ▼                  │
//	                     not ours              │
//	                                           ▼
//	     remember-prerouting, remember-output (dstnat + 1):
//	                                           │  the client's endpoint, if its Service wants that
//	                                           ▼
//	     postrouting (srcnat): hairpin; map source-nat: masquerade or not
//
// Chains that packets of established connections meet are left out while no Service needs them, see
// compile/usage.go.
//
// # Other programs on the node
//
// The kernel runs the nat chains of a hook by priority until one has translated a connection's first packet, and no
// other packet meets any. A chain of equal priority that was registered later is run earlier.
//
// The chains before dstnat translate or refuse what a Service has, so no rule of iptables or of another program at
// dstnat marks or translates these packets. The chains behind it see only what nobody has translated: another proxy
// may serve ports of our cluster IPs, or addresses of the ServiceCIDRs. An address that an interface of the node has,
// too, is not refused, as a process may listen there. A packet that answers a refused one is not a first packet, and
// leaves the node without a look at any Service.
//
// # Chains that choose
//
//	endpoints-5-to-8       one of all endpoints, of which there are 5 to 8
//	endpoints-0-to-2       the same; rejects if there are none
//	endpoints-4093-maglev  one of all, by the client's address, from a lookup table with 4093 slots
//	local-endpoints-…      one of those on this node
//	local-1-to-2-of-5-to-8 externalTrafficPolicy Local: this node and its pods choose from all
//	                       5 to 8, others from the 1 or 2 on this node, or are dropped
//	nodeport-…             the same for node ports; their maps have no address in their keys
//
// Slots are numbered from 0 without a gap. If a rule draws an empty slot, the next one draws again.
//
// # Why maps
//
// The number of chains and sets does not grow with the cluster: a Service is a few elements of maps that all Services
// share. The kernel walks all sets and chains of a table for each of them, so the cost of an object per Service would
// grow with the square of their number. Session affinity (compile/affinity.go) is the exception.
package nft
