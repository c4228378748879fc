// Package trace shows what the kernel did with one connection, hook by hook, for someone whose
// Service does not work.
//
//	Watch.Run: connects, or waits ──> nft/others: events of the first packet, of the answer ─┐
//	rules that matched, base chains ─────────────────────────────────────────────────────────┤
//	sync/conntrack: the entry of the connection ─────────────────────────────────────────────┼──> Story ──> text, JSON
//	routes, neighbours, other suspects ──────────────────────────────────────────────────────┤
//	internal/explain: what vmapd decides ────────────────────────────────────────────────────┘
//
// It decides nothing: [Tell] makes a [Story] of what was seen.
package trace
