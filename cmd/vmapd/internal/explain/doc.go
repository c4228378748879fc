// Package explain explains in words what happens to a connection on a node, if a Service does not work.
//
//	model.Decide ─────────┐
//	Builder.Selection ────┼──> Explanation: facts, steps, conclusion ──> text, JSON
//	the objects as given ─┘
//
// It decides nothing: [model.Decide] decides about the connection, and [model.Builder.Selection]
// has the reasons why endpoints are not used. The objects only add names: an endpoint's node and pod, the
// zone of a hint, the Service of an address that is not served, and the selector that matches no pod.
package explain
