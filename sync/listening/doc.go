// Package listening notices Services that take connections away from a process of the node: an
// external IP or a load balancer's address may be an address of the node itself, and its port
// one on which a process listens, such as sshd or a kubelet.
//
// A [Watcher] is an observer of the reconcile.Loop. After a change it asks the kernel, for the
// frontends on such addresses that are new, whether a socket has the port: one lookup each,
// like that of a packet, without a list of all sockets.
package listening
