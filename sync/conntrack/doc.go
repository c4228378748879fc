// Package conntrack deletes stale flows from the kernel's connection tracking, and lists entries ([Lister]).
//
// Rules choose an endpoint for the first packet of a flow only. UDP has no end of a connection: a sender that never
// pauses keeps its endpoint after that is gone, or reaches none if it began before the Service had endpoints.
// Therefore, after changes of Services, and once an hour:
//
//	reconcile.Loop ──Done──> Reconciler ──dump──> nf_conntrack
//	                             │  which flows have no serving endpoint any more?
//	                             └──────delete──> nf_conntrack
//
// A pass asks one question of each flow: does its reply source serve, by the snapshot that is applied, or by the one
// that a round has begun to apply? A UDP flow to a frontend is deleted if it does not, and so are translated flows of
// frontends that are gone. The next packet of a deleted flow is a first packet again. Rounds go on during a pass: each
// flow is judged by what is known then.
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
