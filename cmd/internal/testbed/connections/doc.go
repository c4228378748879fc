// Command connections compares proxies by the new connections a second that a pod makes through a
// Service, with those that it makes to pods directly.
//
// Four clients in a pod connect over TCP as fast as they can: to two other pods directly, to a
// Service of these two, and to a Service of three, of which one is the pod itself. They do so in
// turns of a fraction of a second, so that what else happens on the machine concerns all of them,
// and the figures are medians. The cluster has more Services, to which nobody connects.
//
//	connections --vmapd bin/vmapd --kube-proxy /path/to/kube-proxy --services 100,1000,10000
//
// A connection is one that was accepted; the client resets it at once. It is lost if it was refused, or not
// answered within three seconds. What it costs includes both ends: on a machine whose processors have other
// work, the share of the proxy's rules is smaller.
package main
