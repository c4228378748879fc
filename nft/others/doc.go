// Package others is about what other programs have in nftables: it lists tables, base chains and rules. What a rule
// does with a packet, the kernel alone decides: nothing here follows one.
//
//	Tables ────────────> names of tables, and their owners
//	IPTables ──────────> chains in the tables of iptables-nft, and their removal
//	ReadRuleset, Rule ─> base chains; a rule by its handle, with the text of "nft list chain"
//	Untraceable: reasons why a packet ends where no rule matches
package others
