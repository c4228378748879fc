// Package httpserver is the HTTP side of the daemon: what its two ports say, and how they
// are kept open.
//
//	MetricsPort.Handler ──┐              ┌─ port 127.0.0.1:10249 ── http.Server
//	                      ├─> Server ────┤
//	HealthPort.Handler  ──┘  (Set: live) └─ port [::1]:10249 ────── http.Server
//	                             │
//	      Certificate (TLS) ─────┤
//	      Authorizer (tokens) ───┘
//
// Everything that is said comes in as values, functions and handlers; this package knows
// neither Services nor metrics. Paths and formats are those of kube-proxy, so that what
// scrapes or debugs it works here too.
//
// A port is open to whoever reaches the node, so each connection costs little and ends:
//
//	headers                      5 s, 64 KiB
//	a request                    30 s; profiles 10 min
//	idle between requests        90 s
//	connections per address      512; further ones wait
//	profiles at a time           2; further ones get status 429
//
// HTTP/2 is not spoken: a scrape has no use for it, and it has been a way to exhaust
// servers (CVE-2023-44487).
package httpserver
