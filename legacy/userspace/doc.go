// Package userspace serves Services by listeners: a backend for nodes whose kernel has nothing, and node
// ports on loopback with every other backend.
//
// A [Forwarder] opens a listener for each address, protocol and port of its [Scope] that has endpoints.
// Each connection is decided by model.DecideAt, as of the snapshot now; an endpoint is chosen, and
// another connection made to it:
//
//	          TCP: a goroutine for each direction, half-close and reset are passed on
//	          SCTP: the same, message by message, on the same stream
//	client ──> 172.30.0.41:80 ──> chooser ──> endpoint 10.0.0.2:8080
//	          UDP: a socket for each client, until it is idle
//
// With [Loopback], it serves 127.0.0.1 and ::1 alone: no kernel forwards a connection to a loopback
// address unless route_localnet opens it to the network as well (CVE-2020-8558), and for IPv6 not even
// then. So a program has to listen there (KEP-6032).
//
// The effect of a change on existing clients:
//
//	change                               TCP, SCTP connections   UDP clients
//	an endpoint is added                 stay                    stay
//	their endpoint is removed            stay, or end after      are sent to another one
//	                                     ServicePort.ConnectionGrace
//	the last endpoint, the frontend      stay                    are forgotten
//	or Settings.Localhost is removed
//	Run ends                             are reset               are forgotten
//
// An address of a Service must be one of the node's. An [Interface] gets those that are not. Clients that
// are to be dropped, and not refused, are dropped by a filter of the listener's socket.
//
// Memory and files are bounded, see limitsFor: at the limit, clients of TCP and SCTP wait in the kernel's queue, and
// a new client of UDP takes the place of the longest idle. A pipe for splice(2) is held only while data is
// on its way.
//
// [Differences] lists every difference from nftables.
package userspace
