// Package life takes a real Kubernetes cluster through what happens to clusters: upgrades,
// exchange of the proxy, lost nodes, a control plane that is away.
//
// Each [Step] is done while clients connect to Services at a steady rate, over new and over
// lasting connections; those that fail are counted. Afterwards, the rules in the kernel of each
// node must be those that `vmapd render` makes of the objects that kubectl shows.
//
//	clients ──> Services ──> pods        counted, all the time
//	                │
//	   step: upgrade, drain, restart …
//	                │
//	kubectl get ─> vmapd render ─> nft   equal, on each node?
//
// The same steps with kube-proxy show which of the failures are Kubernetes' own.
package life
