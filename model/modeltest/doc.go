// Package modeltest makes objects and connections for tests and benchmarks of the model and
// of the backends, and has the [Outcome] of a connection that simulators report.
//
//	NewService("ns1/web").On("172.30.0.41").TCP("http", 80) ──┐
//	NewSlice("ns1/web-1", "web").TCP("http", 8080)... ────────┤
//	Cluster(5000, 50) ────────────────────────────────────────┼──Set──> model.Builder
//	NewRandom(source).Step() ─────────────────────────────────┘
//
// Everything is deterministic: the same seed, or the same bytes of a fuzzer, give the
// same objects on every machine.
//
// The address plan is the repository's:
//
//	addresses               IPv4              IPv6
//	pods                    10.0.0.0/8        fd00:10::/64
//	ClusterIPs              172.30.0.0/16     fd00:172:30::/112
//	nodes, ours is .2       192.168.0.0/24    fd00:192:168::/64
//	load-balancer addresses 192.168.98.0/24   fd00:192:168:98::/64
//	ExternalIPs             192.168.99.0/24   fd00:192:168:99::/64
//	outside                 203.0.113.0/24    2001:db8:203::/64
package modeltest
