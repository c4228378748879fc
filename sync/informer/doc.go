// Package informer is the source of objects from an API server. client-go's reflectors
// read them, and each event is written into a [reconcile.State] at once.
//
//	          list, watch        convert
//	API server ─────────> stream ──────> reflector ──> store ──> reconcile.State
//	                                                  (names)
//
// An object is converted as soon as it is decoded. Only the state keeps its content:
// client-go's informers would keep a second copy.
//
// There is no queue of keys in between. The cost of an event depends on its one object, and
// the state coalesces events.
//
// Missing information changes nothing. While the API server is away, the state stays, and
// the source is not complete before all Services, EndpointSlices and the Node have been
// delivered. An empty object from an HTTP proxy, or half a list, is an error and not an
// empty cluster. Events in the wrong order cause a new list. An older state than before, as
// after a restore of etcd from a backup, is followed, since it is the cluster's state.
//
// For each kind, the log has the begin and the end of errors, each one with another cause, and
// every five minutes the last one. If a right is missing, it names that right. The transport
// follows the files with certificates and tokens, see [Config.REST].
//
// By default client-go streams the initial list (WatchList, KEP-3157), and falls back to a
// plain list if the server refuses that. If the server sends no response, or no bookmark at the end, the
// log has that after ten seconds, and after thirty vmapd requests plain lists from then on, see silence.go.
package informer
