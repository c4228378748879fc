// Package informer is the source of objects from an API server: client-go's
// reflectors, each of whose events is written into a [reconcile.State] at once.
//
//	          list, watch        convert
//	API server ─────────> stream ──────> reflector ──> store ──> reconcile.State
//	                                                  (names)
//
// An object is converted as soon as it is decoded, and the state alone keeps what it says:
// client-go's informers would keep all of it a second time.
//
// There is no queue of keys in between: an event costs what its one object costs,
// and the state itself is what coalesces.
//
// What the API server doesn't say, nothing follows from. While it is away all stays
// as it is, and nothing is complete before Services, EndpointSlices and the Node
// have been delivered entirely. What is no answer of an API server, an empty object from
// a proxy or the half of a list, is an error and not an empty cluster; events in the
// wrong order make everything be read again. A state that is older than the one before,
// as after etcd was restored from a backup, is followed: it is how things are.
//
// Errors are logged once per kind when they begin and once when they end. The transport
// follows the files with certificates and tokens, see [Config.REST].
//
// By default client-go streams the initial list (WatchList, KEP-3157), and falls
// back to a plain list if the server refuses that. Servers before 1.27 neither know
// nor refuse it; for those set KUBE_FEATURE_WatchListClient=false in the environment.
package informer
