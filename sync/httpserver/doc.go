// Package httpserver keeps HTTP servers open: the daemon's two ports, its unix socket, and health checks of Services.
//
// Every host that reaches the node can connect to a port, so all resources of a [Server] are limited.
// HTTP/2 is off, as it is without TLS: it has been used to exhaust servers (CVE-2023-44487).
package httpserver
