// Package preflight says what would be different on a node if vmapd served its Services in place of
// kube-proxy.
//
//	objects, vmapd's configuration ──> connections to try ──┬── model.Decide ────────────────┬──> Report
//	rules that kube-proxy has programmed ───────────────────┴── iptsim or tablesim ──────────┘
//
// A connection is tried to each address and port of each Service, by each kind of client. Equal
// differences of several Services are one [Difference]. Rules that have not yet followed a change of
// the cluster are told apart, see [Stale].
//
// It is pure: values in, values out.
package preflight
