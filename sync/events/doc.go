// Package events records events (events.k8s.io/v1) about the Node and about Services, for administrators.
//
//	Recorder.Node, .Service ─┐
//	                         ├──> client-go's recorder ──> sink ──> create, patch
//	reconcile.Loop ─> Problems ┘
//
// client-go queues events, counts those that repeat, combines those that differ in their text alone, limits those about
// one object, and tries again while the server is away. Recording never blocks.
//
// All nodes see the same problems of a Service. The name of such an event is a hash of its text: the first node creates
// it, and the others learn from the server that it exists. A cluster of thousands of nodes has one such event and not
// thousands. While the problem lasts, the event is renewed before the server forgets it, by the node that created it.
//
// This needs the permissions to create and patch events of events.k8s.io in all namespaces, and to
// list Services, for their UIDs.
package events
