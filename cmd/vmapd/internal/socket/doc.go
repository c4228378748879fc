// Package socket has both ends of the daemon's unix socket: subcommands of vmapd ask the running
// daemon there for its state.
//
//	vmapd status ── Client.Get ── /run/vmapd/vmapd.sock ── Server ── Route ── the daemon's snapshot
//
// It is HTTP with GET requests and JSON answers. Only root may ask: the file's mode says so and, since the mode of an
// existing folder may be any, each end asks the kernel for the other's user (SO_PEERCRED, unix(7)).
//
// The socket is secondary: while it can't be opened, the daemon logs the reason and tries again. After a crash, its
// file stays; the next start replaces it. A file at which a process answers is never replaced.
package socket
