// Package events tells the API server what an administrator should know of: events of
// events.k8s.io/v1 about the Node and about Services.
//
//	Recorder.Node, .Service ─┐ limits per object        5/s
//	                         ├──────────────────> queue ────> Run ──> create, patch
//	reconcile.Loop ─> Problems ┘
//
// To record never blocks. Events are lost rather than kept: beyond a limit, if the server
// refuses one, or is away for too long. [Recorder.Dropped] counts them.
//
// What happens again, word for word, while the last time is no more than six minutes ago, is
// a series: one event with a count, as kube-proxy's. Unlike in client-go's own recorder,
// the words are part of that, so that the second problem of a Service does not pass for the
// first one happening again; there are no goroutines but Run; and when Run has returned,
// everything is written that could be.
//
// What is wrong with a Service is seen by all nodes alike. Such an event has a name that
// follows from what it says: the first node creates it, and the server tells the others that
// it is there. So a cluster of thousands of nodes has one of it and not thousands.
//
// The permissions that this takes: create and patch on events in events.k8s.io, in all
// namespaces.
package events
