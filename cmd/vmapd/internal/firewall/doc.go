// Package firewall tells whether rules of others drop the packets of Services, or keep them from being tracked: those
// of nftables, of iptables-nft and of iptables-legacy, as the kernel has them.
//
//	expressions of nf_tables ──┐
//	                           ├─> Ruleset ─┐
//	entries of iptables-legacy ┘            ├─> Walk ─> Outcome: accepted, dropped by a rule, or either
//	                               Packet ──┘
//
// A packet is known in part: who the client is, for instance, is not. A condition on an unknown part may
// hold or not, so that a packet may have several outcomes. It is dropped for certain only if each of them
// is a drop.
package firewall
