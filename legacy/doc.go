// Package legacy is the place of the backends for nodes whose kernel has no nftables to
// speak of. They do what model decides, from the same snapshots as nft:
//
//	                      ┌─> iptables ──> text for iptables-restore ──┐
//	model.FamilySnapshot ─┤                                            ├──> host
//	                      └─> ipvs ──────> a plan of operations ───────┘
//
// What they can't do as nftables does is in iptables.Differences and ipvs.Differences.
package legacy
