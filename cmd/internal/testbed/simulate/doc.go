// Package simulate plays the life of a node in which everything that can go wrong does, and checks after
// each step what must always hold. Nothing in it is left to chance: one seed is one life.
//
//	server ──events──> feed ──────────┐                                          nft/nftfake
//	(objects,          feed ──────────┼─> reconcile.State ─> Loop ─> nft/kernel ──messages──> tables
//	 their history)    host addresses ┘                       │                                 │
//	                                        observers: health, conntrack ──messages──> flows    nft/nftsim: packets
//	                      └───────────────── the daemon ──────────────────┘
//
// All but the server, its feeds, the kernel and the packets is the product's own code. The clock is that of
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
//     one of these snapshots sends it. An Apply without an error leaves the table of its snapshot.
//   - No packet goes to an endpoint that none of these snapshots has. One of a client with session affinity may be
//     dropped while an Apply is in progress: see mayComeBack.
//   - Once faults have ended and all events have arrived, the table is that of a fresh compilation of the
//     server's objects, and no client is remembered with an endpoint that is gone, within a few minutes of the
//     clock.
//   - Nothing is applied before a list of each kind of objects has come. A change that failed is tried again, but not
//     within 100 ms.
//   - With nothing to do, the daemon writes nothing, compares at most once in ten minutes and holds two connections;
//     a daemon that could not start holds none. The table has nothing that no snapshot needs.
//   - At the end, each endpoint is one that an EndpointSlice offers, ready if another one is, and on the node if it
//     must be, as a few lines find that share nothing with the model.
//   - A table that can have an owner is the daemon's at the end.
//   - A fault at the start is not taken for something that the kernel lacks.
//   - A flow of UDP never pauses. At the end, an endpoint that serves answers it. A flow is not deleted if its endpoint
//     serves by all possible snapshots.
//   - The tracker of health says that all is ready at the end.
//
// TestMemoryIsBounded measures what a daemon keeps in a longer life.
package simulate
