// Package conntrack keeps the kernel's connection tracking in line with the Services.
//
// Rules choose an endpoint for the first packet of a flow only; the kernel then sends all
// others the same way, as long as they keep coming. UDP knows no end of a connection: a
// sender that never pauses goes on sending to an endpoint that is gone, or into the void if
// it began before the Service had endpoints. So whenever Services change, and once in a while,
//
//	reconcile.Loop ──Done──> Reconciler ──dump──> nf_conntrack
//	                             │  which flows does no endpoint answer for any more?
//	                             └──────delete──> nf_conntrack
//
// After a pass a UDP flow to a frontend of ours is tracked only if its reply source is an
// endpoint of that service port that still serves, terminating ones included. The sender's
// next packet is then a first packet again. Traffic policies, hints and source ranges have
// no part in it: they are about new flows.
//
// TCP and SCTP end by themselves, so that their flows are touched only where the Service, or
// the configuration, asks for it, and some time after the endpoint has ceased to serve (see
// model.ServicePort.EndsStale). A client then sees its connection reset: its next packet is
// tracked anew and, as the kernel picks up connections that are under way
// (nf_conntrack_tcp_loose), translated to another endpoint, which does not know it; without
// endpoints it is refused.
//
// What is not ours is never touched: flows to other addresses, to a node port's number on
// another host, straight to a pod, on loopback, or in another conntrack zone.
package conntrack
