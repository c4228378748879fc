// Package simulate plays the life of a node in which everything that can go wrong does, and checks after
// each step what must always hold. Nothing in it is left to chance: one seed is one life.
//
//	server ──events──> informer.Feed ─┐                                          nft/nftfake
//	(objects,          informer.Feed ─┼─> reconcile.State ─> Loop ─> nft/kernel ──messages──> tables
//	 their history)    host addresses ┘                       │                                 │
//	                                                          observer               nft/nftsim: packets
//	                      └───────────────── the daemon ──────────────────┘
//
// All but the server, the kernel and the packets is the product's own code. The clock is that of
// testing/synctest, so that an hour passes in no time.
//
// A [Life] has a [Node], which says what kernel and settings there are, and [Step]s. Each step has a seed of
// its own: without some of the others it still does the same, which lets [Shrink] find a short life that
// fails, too.
//
// What always holds:
//
//   - The table is what some snapshot says that the daemon has taken since the last one that it applied
//     without an error, or the last applied one. While a large batch comes in pieces, each packet goes where
//     one of these snapshots sends it.
//   - No packet goes to an endpoint that none of these snapshots has.
//   - Once faults have ended and all events have arrived, the table is that of a fresh compilation of the
//     server's objects, within a few minutes of the clock.
//
// Bounds on memory, on the number of retries and on open connections are not checked.
package simulate
