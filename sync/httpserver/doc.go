// Package httpserver keeps HTTP servers open: the daemon's two ports, its unix socket, and health checks of Services.
//
// Every host that reaches the node can connect to a port, so all resources of a [Server] are limited:
//
//	headers                      5 s, 64 KiB
//	a request                    30 s; profiles 10 min
//	idle between requests        90 s
//	connections per port         512; then the most silent one is closed
//
// HTTP/2 is off, as it is without TLS: it has been used to exhaust servers (CVE-2023-44487).
package httpserver
