// Package conntrack deletes stale flows from the kernel's connection tracking.
//
// Rules choose an endpoint for the first packet of a flow only. UDP has no end of a connection: a sender that never
// pauses keeps its endpoint after that is gone, or reaches none if it began before the Service had endpoints.
// Therefore, after each round:
//
//	reconcile.Loop ──Done──> Reconciler ──list by endpoint, or by frontend──> nf_conntrack
//	                             │  does the reply source still serve?
//	                             └──────delete──> nf_conntrack
//
// The kernel filters: a change costs what its flows cost. The whole table is listed at the start, after rules were
// repaired or the node's addresses changed, once an hour, for many changes at once, and by kernels before Linux 5.8,
// which have no filter. Rounds go on meanwhile. What is missed, because the kernel refused a service port or a round,
// is found within the hour. So are flows that began without rules, on a new node or when another program had flushed
// them: they are neither translated nor answered. One that is answered has reached a host with that address, and stays.
//
// TCP and SCTP connections end by themselves. They are deleted only if the Service or the configuration asks for it,
// some time after the endpoint has ceased to serve (see model.ServicePort.EndsStale). The client's connection is then
// reset: the kernel translates its next packet (nf_conntrack_tcp_loose) to an endpoint that does not know it.
//
// Other flows are never deleted: to other addresses, to a node port's number on another host, directly to a pod, on
// loopback, or in another conntrack zone.
package conntrack
