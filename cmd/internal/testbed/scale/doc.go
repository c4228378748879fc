// Command scale starts vmapd in clusters of several sizes and shows what that costs: how long until it is ready, its
// memory, and how long a change of one endpoint takes to be programmed, alone and among a thousand
// other changes per second.
//
//	go run ./cmd/internal/testbed/scale -shapes 5000x50
//
// With -results, they are kept in a file, which plot.sh draws. With -kube-proxy, kube-proxy's start and its time for a
// change are measured in the same clusters.
//
// With -throughput, it measures how fast one pod reaches another, through the proxies and past them: one TCP
// connection and datagrams by iperf3, and new connections.
//
// The API server and the objects are in this process, the proxy is one of its own, and both are in a network namespace
// that is made for it. It needs root, or makes itself root of a user namespace.
//
// The time of a change is that from before the object is given to the API server until the kernel has sent the new
// endpoint to a netlink socket of this process: encoding, sending and the wake-ups of three processes are in it. In the
// end, vmapd is killed and started again, and must find nothing to change in the kernel.
package main
