// Package localhost serves node ports on the loopback addresses, 127.0.0.1 and ::1.
//
// No kernel forwards a connection to a loopback address unless route_localnet opens it
// to the network as well (CVE-2020-8558), and for IPv6 not even then. So a program has
// to listen there (KEP-6032). A [Forwarder] opens a listener for each node port of a
// snapshot, chooses one of the endpoints of model.Decide for each client, and connects to
// it:
//
//	          TCP: one goroutine per direction, half-close kept
//	client ──> 127.0.0.1:30080 ──> chooser ──> endpoint 10.0.0.2:8080
//	          UDP: one socket per client, until it is idle
//
// The effect of a change on existing clients:
//
//	change                               TCP connections   UDP clients
//	an endpoint is added                 stay              stay
//	their endpoint is removed            stay              are sent to another one
//	the last endpoint, the node port     stay              are forgotten
//	or Settings.Localhost is removed
//	Run ends                             are reset         are forgotten
//
// Each node port has at most 1024 TCP connections, further clients wait; 4096 UDP clients,
// a new one takes the place of the longest idle; and 4096 clients whose endpoint is
// remembered for session affinity.
//
// SCTP has no listener: the client is refused.
package localhost
