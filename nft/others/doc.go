// Package others is about what other programs have in nftables: it lists tables, base chains and rules, and traces
// packets through them. What a rule does with a packet, the kernel alone decides: nothing here follows one.
//
//	TableNames ─────> names of tables
//	IPTables ───────> chains in the tables of iptables-nft, and their removal
//	StartTrace(Filter) ──> table vmapd-trace-N ── meta nftrace set 1 ──> NFT_MSG_TRACE ──> Read: Events
//	ReadRuleset ────> base chains; rules by the handles in Events, with the text of "nft list chain"
//	Untraceable: reasons why a packet ends where no rule matches
//
// A trace. Its table has, at prerouting and output, a rule before all others that marks first packets, one for answers
// that are not tracked, and one behind connection tracking for answers. Other packets match none of them. At each hook,
// an empty chain is the first, and one the last: that they were passed shows how far a packet came, even where nothing
// of nftables sees it.
//
// The table belongs to the socket (flag owner, since Linux 5.12), so the kernel removes it however the process ends. On
// older kernels, the set element that the rules look up times out, and [RemoveStaleTraces] removes such tables later.
package others
