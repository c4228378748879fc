// Package informer is the source of objects from an API server. client-go's informers read them, and each event is
// written into a [reconcile.State] at once.
//
//	          list, watch        check             transform, process
//	API server ─────────> stream ─────> reflector ────────────────────> reconcile.State
//	                                                                    (names, versions)
//
// Only the state keeps the content of an object: an informer's store would keep a second copy. The state coalesces
// events.
//
// Missing information changes nothing. While the API server is away, the state stays, and the source is not complete
// before all Services, EndpointSlices and the Node have been delivered. An empty object from an HTTP proxy, or half a
// list, is an error and not an empty cluster. Events in the wrong order cause a new list. A state with a smaller
// version than before, as after a restore of etcd from a backup, is followed, since it is the cluster's state.
//
// For each kind, the log has the begin and the end of errors, each one with another cause, and the right that is
// missing.
//
// By default client-go streams the initial list (WatchList, KEP-3157), and falls back to a plain list if the server
// refuses that. If the server sends no response, or no bookmark at the end, the log has that after ten seconds, and
// after thirty vmapd requests plain lists from then on.
package informer
