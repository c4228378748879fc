// Package conntrack deletes stale flows from the kernel's connection tracking.
//
// Rules choose an endpoint for the first packet of a flow only. The kernel sends all further
// packets the same way. UDP has no end of a connection: a sender that never pauses keeps its
// endpoint after that is gone, or reaches none if it began before the Service had endpoints.
// Therefore, after changes of Services, and once an hour:
//
//	reconcile.Loop ──Done──> Reconciler ──dump──> nf_conntrack
//	                             │  which flows have no serving endpoint any more?
//	                             └──────delete──> nf_conntrack
//
// A pass asks one question of each flow: does its reply source serve, by the snapshot that is applied,
// or by the one that a round has begun to apply? A UDP flow to a frontend is deleted if it does not.
// An endpoint that terminates may serve. The next packet of a deleted flow is a first packet again.
// The translated flows of frontends that are gone end, too: of a Service, of a round that failed, and of a
// node port at an address that ceases to be a node-port address.
//
// A pass begins at once after such a change, unless one has just ended: then after a pause that leaves
// nine tenths of the time to others, and is a second at most. Rounds go on while a pass lists flows:
// it judges each flow by what is known then, and the loop reports each snapshot before the first flow
// can follow it.
//
// A service port that the kernel refuses alone keeps its rules, and so its flows: see reconcile.Round. Those of the
// others end meanwhile.
//
// Traffic policies, hints and source ranges do not matter: they apply to
// new flows only.
//
// Without rules, on a new node or when another program has flushed them, a connection leaves by the
// default route, and its packets that come after the rules go the same way. After the first round, and
// after each one that repairs rules, flows to a frontend that are neither translated nor answered are
// deleted, and the client's next attempt is a first packet again. One that is answered has reached
// a host with that address, and stays; and so does one to an endpoint that has the frontend's
// address and port, which no rule translates.
//
// TCP and SCTP connections end by themselves. Other flows of theirs are deleted only if the Service or
// the configuration asks for it, some time after the endpoint has ceased to serve (see
// model.ServicePort.EndsStale). The client's connection is then reset: the kernel picks up
// its next packet as a new flow (nf_conntrack_tcp_loose) and translates it to another
// endpoint, which does not know the connection. Without endpoints it is rejected.
//
// Of TCP, connections that an ejected endpoint has not answered end, see package outlier: the client sends its first
// packet again, to another endpoint.
//
// Other flows are never deleted: to other addresses, to a node port's number on another
// host, directly to a pod, on loopback, or in another conntrack zone.
//
// Besides, [Lister] lists entries.
package conntrack
