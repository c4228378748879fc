// Package status has the answers to questions about a running daemon: what it has programmed and since
// when, what it has left out and for which reason.
//
//	reconcile.Loop ── Recorder.Done ──> View ──┬─> Overview, Services, One
//	                                           │        │
//	                             a pointer     │        ├── JSON: the daemon's socket
//	                                           │        └── Tables: vmapd status, vmapd services
//
// A [View] never changes, so questions take no lock, and the loop never waits for an answer. The
// answers are values without clocks and sockets.
package status
