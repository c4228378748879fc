// Package trace shows what the kernel did with one connection, hook by hook, if a Service does not work.
//
//	Watch.Run: connects, or waits ─> nft/tracer: events of the first packet and of the answer; nft/others: rules
//	                                 routes, neighbours, other suspects
//	                                 internal/explain: what vmapd expects
//
// It decides nothing: [NewStory] makes a [Story] of what was seen.
package trace
