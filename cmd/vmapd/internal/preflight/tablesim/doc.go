// Package tablesim runs connections through an nftables table of another program, such as
// kube-proxy, and returns their outcomes.
//
//	text or JSON of nft ──Parse──┐
//	                             ├──> Table ──Check──> Table ──Run──> Outcome
//	kernel ──────────────────────┘
//
// The first packet of a connection, which is NEW, passes the hooks in the kernel's order:
//
//	from the network: prerouting ──┬─ address of the node ──> input
//	                               └─ any other ──> forward ──> postrouting
//	from the node:    output ──> postrouting ── address of the node ──> input
//
// It explores all random choices: an Outcome has every destination with its share of the
// connections. Sets that remember clients are as the table has them.
//
// An expression or a statement that it does not know, a missing chain or set are errors. The
// simulator of our own rulesets is nftsim.
package tablesim
