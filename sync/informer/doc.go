// Package informer is the source of objects from an API server: client-go's
// informers, each of whose events is written into a [reconcile.State] at once.
//
//	          list, watch                  convert
//	API server ─────────> reflector, store ──────> handler ──> reconcile.State
//	                        (stripped)
//
// There is no queue of keys in between: an event costs what its one object costs,
// and the state itself is what coalesces.
//
// What the API server doesn't say, nothing follows from. While it is away all stays
// as it is, and nothing is complete before Services, EndpointSlices and the Node
// have been delivered entirely.
//
// By default client-go streams the initial list (WatchList, KEP-3157), and falls
// back to a plain list if the server refuses that. Servers before 1.27 neither know
// nor refuse it; for those set KUBE_FEATURE_WatchListClient=false in the environment.
package informer
