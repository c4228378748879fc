// Package history checks what clients saw while snapshots replaced one another.
//
// Under load, nobody can say which snapshot a packet met. But it met one that was in force between the packet's
// departure and its answer, and [model.Decide] says what that snapshot does. So, as linearizability checkers do
// with reads:
//
//	            Apply       Apply            Apply
//	snapshots   ├──1──┤     ├──2──┤          ├──3──┤
//	in force    ╞═══════════════1═╡
//	                        ╞══════════2═══════════╡
//	                                         ╞══════════3════
//	operation                     ├─────┤                       right if 1 or 2 decides so
//
// A snapshot is in force from the begin of its Apply to the end of the next one. An operation is a connection,
// or a datagram, with its answer. It is right if
//
//   - the endpoint that answered is a target of a snapshot in force, and has seen the source of that target: the
//     client's address or the node's. Where a lookup table chooses, it is the table's target.
//   - or nobody answered, and a snapshot in force rejects the connection (a refusal), drops it (silence), or leaves
//     it alone (either): no Service has the destination.
//
// What decides about silence is in force within a second of the operation's start: a lost datagram is not sent again,
// and a SYN only after that second.
//
// Each connection and each datagram has a source port of its own, so that connection tracking decides nothing. The
// other rules are wider. [History.Check] counts what each of them explains:
//
//   - [Flow]: later datagrams of one flow ([Operation.Before]) stay with their endpoint, and their source, while the
//     endpoint serves, also as a terminating one and whatever the traffic policy is. When it serves no more, they stay
//     until sync/conntrack has ended a pass that began after it had been told.
//   - [Swept]: over UDP, an answer that is on its way when such a pass deletes its flow is not translated back, and
//     lost. The endpoint must have ceased to serve. Where endpoints change all the time, this explains nearly any silence
//     within a second, also that of a reconciler which does not spare flows to newer endpoints.
//   - [Returned]: with nftables, a datagram of a client that affinity remembers at an endpoint that an Apply has removed
//     is dropped, until the map of clients is purged, for at most [Backend.Purge]. If the endpoint serves others still, it
//     is answered there.
//   - [Parts]: with iptables, tables come into force one after the other ([Backend.Tables]). In the middle of an Apply that
//     changes a connection's verdict, it may be refused or lost.
//   - [Hooks]: in the middle of an Apply, a packet gets its endpoint and its source at different hooks, and so by
//     two neighbouring snapshots: netfilter changes the rules of a hook, and not those of a packet.
//   - [Stalled]: silence says nothing while the machine is so busy that datagrams which no rule concerns take
//     a quarter of a second ([History.Witness]).
package history
