// Package kernel keeps the tables of this node's kernel as nft compiles them.
//
//	model.FamilySnapshot ──Backend.Apply──> reach ──known──> compile, batch.Diff ─────────────────────┐
//	                                          ▲  └─unknown─> readTable, compile, batch.Pieces ────────┤
//	                                          │                                                       ▼
//	                                          └──refused: the table is read; then without ── send: transactions,
//	                                             the service ports with elements that failed             messages
//
// [Backend] holds one lasting netlink connection. It reads what is there once, at a start while the objects arrive
// (ReadAhead), sends the difference, and from then on knows the kernel's state: the cost of a change depends on its
// size, not on the cluster's.
//
// Ownership. Since Linux 6.9 a table can be owned by the connection that writes it and still outlive it (flags owner
// and persist): neither "nft flush ruleset" nor "nft delete table" of another program touches it, it stays when the
// process ends, and the next process claims it. Where a table is not owned, as with older kernels or after nft loaded
// a listing, [Backend.Watch] notices changes by other programs.
package kernel
