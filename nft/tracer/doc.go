// Package tracer traces packets through the rules of all programs.
//
//	Start(Filter) ──> table vmapd-trace-N ── meta nftrace set 1 ──> NFT_MSG_TRACE ──> Read: Events
//
// The table has, at prerouting and output, a rule before all others that marks first packets, one for answers that are
// not tracked, and one behind connection tracking for answers. Other packets match none of them. At each hook, an empty
// chain is the first, and one the last: that they were passed shows how far a packet came, even where nothing of
// nftables sees it.
//
// The table belongs to the socket (flag owner, since Linux 5.12), so the kernel removes it however the process ends. On
// older kernels, the set element that the rules look up times out, and [RemoveStale] removes the table.
package tracer
