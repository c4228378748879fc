// Package lab builds throw-away worlds in network namespaces: a client, a
// node and pods, with real packets between them.
//
// The dataplane tests of cmd use it, and so does "make demo". A world is
//
//	       client                       node                      pods
//	203.0.113.9 eth0 ───────── eth0 192.168.0.2  veth1 ───── eth0 10.0.0.2  pod-1
//	                                             veth2 ───── eth0 10.0.0.3  pod-2
//	routes to the node, the                      veth3 ───── eth0 10.0.0.4  pod-3
//	service ranges and the pods                     …
//	go through 192.168.0.2
//
// and the same again in IPv6; the address plan is in addresses.go. The node
// forwards; nothing in it knows about Services, that is the part under test.
// Pods answer each request with their own name and the address that they saw
// as the source, so that a caller learns which endpoint was chosen and whether
// the source was masqueraded.
//
// All namespaces are anonymous: they exist as long as this process, one of its
// sockets or a program started with [Namespace.Command] refers to them, and no
// longer. Nothing is mounted in /run/netns, so nothing stays behind, not even
// after SIGKILL.
//
// Network namespaces need CAP_SYS_ADMIN and CAP_NET_ADMIN. A program without
// them begins again in a user namespace of its own, see [Main].
package lab
