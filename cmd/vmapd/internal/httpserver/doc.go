// Package httpserver has the daemon's two HTTP ports: the pages of the one for metrics, and the servers that keep both
// open.
//
//	MetricsPort.Handler ──> Server ── http.Server at 127.0.0.1:10249
//	health.Tracker      ──> Server ── http.Server at 0.0.0.0:10256
//
// The contents of the pages come as values, functions and handlers; this package knows neither
// Services nor metrics. Paths and formats are kube-proxy's, so that the same tools work.
//
// Every host that reaches the node can connect to a port, so all resources are limited:
//
//	headers                      5 s, 64 KiB
//	a request                    30 s; profiles 10 min
//	idle between requests        90 s
//	connections per port         512; then the most silent one is closed
//
// HTTP/2 is off, as it is without TLS: it has been used to exhaust servers (CVE-2023-44487).
package httpserver
