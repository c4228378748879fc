// Package nftsim runs connections through an nft.Table and returns their outcomes.
//
// The first packet of a connection passes the hooks in the kernel's order, as far as a
// ruleset of ours can have chains there:
//
//	from the network: prerouting ──┬─ address of the node ──> input
//	                               └─ any other ──> forward ──> postrouting
//	from the node:    output ──> postrouting
//
// It explores all random choices: an Outcome has every endpoint with its share of the
// connections. A statement that it does not know, a jump to a missing chain, an element
// of the wrong width are errors.
package nftsim
