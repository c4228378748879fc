// Package nftsim runs packets through an nft.Ruleset and says where they come out.
//
// It takes the kernel's way, with the hooks that a ruleset of ours can have:
//
//	Pod, Outside ──> prerouting ──┬─ address of the node ──> input ─────────> Accept
//	                              └─ any other ──> forward ──> postrouting ──> Accept
//	Node ──────────> output ─────────────────────────────────> postrouting ──> Accept
//
// Only the first packet of a connection is meant: chains of type nat see no other.
// Choices are explored, not drawn: an Outcome has every endpoint with its share of the
// connections.
//
// It runs typed values, and knows each statement: one that it does not know, a jump to
// a chain that is missing, an element of the wrong width, are errors and not guesses.
package nftsim
