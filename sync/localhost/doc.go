// Package localhost serves node ports on the loopback addresses, 127.0.0.1 and ::1.
//
// No kernel forwards a connection to a loopback address unless route_localnet opens it
// to the network as well (CVE-2020-8558), and for IPv6 not even then. So a program has
// to listen there (KEP-6032). A [Forwarder] opens a listener for each node port of a
// snapshot, chooses an endpoint for each client, as model.Decide has it, and makes a
// connection of its own to it:
//
//	          TCP: one goroutine per direction, half-close kept
//	client ──> 127.0.0.1:30080 ──> chooser ──> endpoint 10.0.0.2:8080
//	          UDP: one socket per client, until it is idle
//
// What a change does to clients that are there already:
//
//	change                               TCP connections   UDP clients
//	another endpoint comes               stay              stay
//	their endpoint leaves                stay              are sent to another one
//	no endpoint is left, the node port   stay              are forgotten
//	or Settings.Localhost goes away
//	Close                                are reset         are forgotten
//
// Bounds for each node port: 1024 TCP connections, further clients wait; 4096 UDP
// clients, for another one the longest idle is forgotten; 4096 clients whose endpoint is
// remembered for session affinity.
//
// SCTP has no listener: the client is refused.
package localhost
