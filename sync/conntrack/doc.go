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
// repaired, once an hour, for many changes at once, and by kernels before Linux 5.8, which have no filter. Rounds go on
// meanwhile: each flow is judged by the rules that are known then, and stays if those of a round that has begun serve
// it. What is missed, because the kernel refused a service port or a round, is found within the hour.
//
// Without rules, on a new node or when another program has flushed them, a connection leaves by the default route, and
// its later packets, too. After the first round, and after each one that repairs rules, flows to a frontend that are
// neither translated nor answered are deleted. One that is answered has reached a host with that address, and stays.
//
// TCP and SCTP connections end by themselves. They are deleted only if the Service or the configuration asks for it,
// some time after the endpoint has ceased to serve (see model.ServicePort.EndsStale). The client's connection is then
// reset: the kernel picks up its next packet as a new flow (nf_conntrack_tcp_loose) and translates it to another
// endpoint, which does not know the connection.
//
// Other flows are never deleted: to other addresses, to a node port's number on another host, directly to a pod, on
// loopback, or in another conntrack zone.
package conntrack
