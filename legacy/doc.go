// Package legacy holds the backends for nodes whose kernel has no usable nftables. They carry
// out the decisions of model, from the same snapshots as nft:
//
//	                      ┌─> iptables ──> text for iptables-restore ──┐
//	model.FamilySnapshot ─┤                                            ├──> host
//	                      └─> ipvs ──────> a plan of operations ───────┘
//
// iptables.Differences and ipvs.Differences list every difference from nftables.
package legacy
