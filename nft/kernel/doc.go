// Package kernel keeps the tables of this node's kernel as nft compiles them.
//
// [Backend] holds one lasting netlink connection. It reads what is there once, sends
// the difference, and from then on knows what is there: a change is compiled, compared
// and sent at a cost that follows the change.
//
// Ownership. Since Linux 6.9 a table can be owned by the connection that writes it and
// still outlive it (flags owner and persist): neither "nft flush ruleset" nor "nft
// delete table" of others touches it, it stays when the process ends, and the next
// process claims it. Older kernels have no such flag for tables that shall stay: there,
// and wherever a table is not owned, [Watched] notices what others do to it.
//
// Session affinity. Packets note clients in maps of ours. What they noted is brought in
// line behind each batch (purge.go): no packet could tell.
//
// Counters. If wanted, elements of two more sets count new connections. They are read over
// a connection of their own, while batches go on (counters.go).
package kernel
