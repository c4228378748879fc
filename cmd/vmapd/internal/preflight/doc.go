// Package preflight lists what changes on a node when vmapd replaces kube-proxy.
//
//	kube-proxy's configuration, mode, version ──┐
//	vmapd's configuration and backend ──────────┼── table of known differences ──> Report
//	Services, EndpointSlices, the node ─────────┘
//
// Each row of the table is a difference that is known for a mode and a backend, with the Services that it
// concerns and the setting that keeps the former behaviour. Nothing is read from the kernel, so
// rules that a kube-proxy has there are not examined.
//
// It is pure: values in, values out.
package preflight
