// Package events records events (events.k8s.io/v1) about the Node and about Services, for
// administrators.
//
//	Recorder.Node, .Service ─┐ limits per object        5/s
//	                         ├──────────────────> queue ────> Run ──> create, patch
//	reconcile.Loop ─> Problems ┘
//
// Recording never blocks. An event is dropped if it exceeds a limit, if the server refuses
// it, or if the server is away for too long. [Recorder.Dropped] counts dropped events.
//
// An event with the same text as one of the last six minutes extends its series: one event
// with a count, as kube-proxy's. Three things differ from client-go's recorder. The text is
// part of a series' identity, so that the second problem of a Service does not look like a
// repetition of the first. There are no goroutines but Run. When Run has returned, all
// events have been written or dropped.
//
// All nodes see the same problems of a Service. The name of such an event is a hash of its
// text: the first node creates it, and the others learn from the server that it exists. A
// cluster of thousands of nodes has one such event and not thousands. While the problem lasts, the event is
// renewed before the server forgets it, by the node that created it.
//
// This needs the permissions to create and patch events of events.k8s.io in all namespaces, and to
// list Services, for their UIDs.
package events
