// Command retry has endpoints of a Service fall silent, refuse or lose packets, and shows how long new
// connections to that Service wait: with connection retry, without it, and with kube-proxy.
//
//	make -C cmd/internal/testbed retry RUNS='one is silent' KUBE=DIR
//
// Each run has a new world in network namespaces ([lab]): an API server, a node with the proxy, and pods, of which the
// first is at fault. Clients with many addresses are a pod, the node itself, and machines outside, which connect by
// node port and by the load balancer's address, over IPv4 and IPv6. Each of these opens 200 connections a second for
// 20 s, and waits for each one 10 s. The table has how long it took until a connection was open; it
// failed if the pod has not answered on it by then.
//
// Clients of DNS are those of glibc: three queries from one socket, 5 seconds apart. Then "4 to 7 s" are answers to the
// second query, "later" to the third.
package main
