// Package socket has both ends of the daemon's unix socket: subcommands of vmapd ask the running
// daemon there for its state.
//
//	vmapd status ── Client.Get ── /run/vmapd/vmapd.sock ── Server ── Route ── the daemon's snapshot
//
// It is HTTP with GET requests and JSON answers. Only root may ask, by the file's mode. Since the folder may be
// anyone's, the commands ask the kernel for the user of the process that answers (SO_PEERCRED, unix(7)).
//
// The socket is secondary: while it can't be opened, the daemon logs the reason and tries again. After a crash, its
// file stays; the next start replaces it. A file at which a process answers is never replaced.
package socket
