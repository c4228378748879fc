// Package userspace serves Services by listeners: a backend for kernels without nftables, iptables
// and IPVS, and node ports on loopback with every other backend.
//
// A [Forwarder] opens a listener for each address and port. model.DecideAt decides about each connection,
// as of the snapshot now; an endpoint is chosen, and another connection made to it:
//
//	          TCP: io.Copy in each direction; half-close and reset are passed on
//	client ──> 172.30.0.41:80 ──> choose ──> endpoint 10.0.0.2:8080
//	          UDP: a socket for each client, until it is idle
//
// With [Options.Loopback], it serves 127.0.0.1 and ::1 alone: no kernel forwards a connection to a loopback
// address unless route_localnet opens it to the network as well (CVE-2020-8558), and for IPv6 not even
// then. So a program has to listen there (KEP-6032).
//
// TCP connections stay when a Service or its endpoint goes, unless ServicePort.ConnectionGrace ends them.
// Clients of UDP are sent to another endpoint. The end of Run resets all.
package userspace
