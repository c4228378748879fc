// Package informer is the source of objects from an API server. client-go's reflectors read them, and each event is
// written into a [reconcile.State] at once.
//
//	          list, watch            store
//	API server ─────────> reflector ───────> reconcile.State
//
// Only the state keeps the content of an object: an informer's store would keep a second copy. The state coalesces
// events.
//
// Missing information changes nothing. While the API server is away, the state stays, and the source is not complete
// before all Services, EndpointSlices and the Node have been delivered. An empty object from an HTTP proxy, or half a
// list, is an error and not an empty cluster.
//
// For each kind, the log has the begin and the end of errors, each one with another remedy.
//
// By default client-go streams the initial list (WatchList, KEP-3157), and falls back to a plain list if the server
// refuses that. If the server sends no bookmark at the end, and no objects for thirty seconds, vmapd requests a plain
// list.
package informer
