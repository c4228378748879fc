// Package iptsim reads what iptables-restore reads, and says where packets come out.
//
//	text ──Tables.Restore──> Tables ──New──> Simulator ──Run──> Outcome
//
// A packet takes the kernel's way through the tables nat and filter:
//
//	Pod, Outside ──> nat PREROUTING ──┬─ address of the node ──> filter INPUT ─────────────────────> Accept
//	                                  └─ any other ──> filter FORWARD ──> nat POSTROUTING ──────────> Accept
//	Node ──────────> nat OUTPUT ──> filter OUTPUT ──> nat POSTROUTING ── (address of the node: INPUT) ──> Accept
//
// Only the first packet of a connection is meant: it is NEW. Choices are explored, not
// drawn: an Outcome has every endpoint with its share of the connections.
//
// Simulator.Hook runs any packet through one table at one hook, also in mangle and with
// ipsets, for a simulator of what else a packet meets on its way (ipvssim).
//
// It is strict. An option, match or target that it does not know, a chain that is missing
// or still in use when it is deleted, a target in a table where the kernel refuses it, are
// errors and not guesses.
package iptsim
