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
// thousands. While the problem lasts, the node that created the event renews it before the server forgets it, and
// nobody else. It may do so after a restart, too: each node tries once, and the server refuses to change the event of
// another (its reportingInstance is immutable).
//
// This needs the permissions to create and patch events of events.k8s.io in all namespaces.
package events
