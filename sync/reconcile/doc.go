// Package reconcile drives a dataplane towards the desired state.
//
// The folder sync holds everything between the sources of objects and a backend:
//
//	informer ─┐
//	manifest ─┼─> reconcile.State ─> reconcile.Loop ─> Backend
//	hostaddr ─┘     (a Builder)       (one goroutine)
//	                                         └──> Observers: health, events, conntrack, …
//
// Sources write objects into a [State]. The [Loop] takes a snapshot of it whenever
// something changed and nothing is being applied, so events that arrive meanwhile
// coalesce into one round without any fixed pause. Once in a while, and when it hears
// that others changed the dataplane, it has the Backend compare everything.
package reconcile
