// Package legacy holds the backends for kernels without usable nftables. They carry
// out the decisions of model, from the same snapshots as nft:
//
//	                      ┌─> iptables ──> text for iptables-restore ──┐
//	model.FamilySnapshot ─┤                                            ├──> host
//	                      └─> ipvs ──────> a plan of operations ───────┘
//
// Package userspace needs no rules. It is a backend, too, so it is here, and not in sync: sync may not
// import legacy, nor legacy sync, and cmd lets it follow the rounds.
//
// The page cmd/vmapd/docs/internals.md lists every difference from nftables.
package legacy
