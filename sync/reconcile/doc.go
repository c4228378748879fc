// Package reconcile keeps a dataplane in the desired state.
//
// The folder sync holds everything between the sources of objects and a backend:
//
//	informer ─┐
//	manifest ─┼─> reconcile.State ─> reconcile.Loop ─> Backend
//	hostaddr ─┘     (a Builder)       (one goroutine)
//	                                         └──> Observers: health, events, conntrack, …
//
// Sources write objects into a [State]. The [Loop] applies a snapshot of it after each change. Changes during a round
// coalesce into the next one, without any fixed pause. From time to time, and when another program has changed the
// dataplane, the Backend compares everything.
package reconcile
