// Package iptsim parses the input of iptables-restore and runs connections through it.
//
//	text ──Tables.Restore──> Tables ──New──> Simulator ──Run──> Outcome
//
// The first packet of a connection, which is NEW, passes the tables nat and filter in the
// kernel's order:
//
//	from the network: nat PREROUTING ──┬─ address of the node ──> filter INPUT
//	                                   └─ any other ──> filter FORWARD ──> nat POSTROUTING
//	from the node:    nat OUTPUT ──> filter OUTPUT ──> nat POSTROUTING ── address of the node ──> filter INPUT
//
// It explores all random choices: an Outcome has every endpoint with its share of the
// connections.
//
// Simulator.Hook runs any packet through one table at one hook, also in mangle and with
// ipsets. The simulator of IPVS (ipvssim) uses it.
//
// An option, match or target that it does not know, and a chain that is missing or still in use when it is deleted, are
// errors. Whether the kernel takes the rules is for tests with the real programs.
package iptsim
