// Package legacy is the place of the backends for nodes whose kernel has no nftables to
// speak of. They do what model decides, from the same snapshots as nft:
//
//	model.FamilySnapshot ──> iptables ──> text for iptables-restore ──┐
//	                                                                  ├──> host
//
// What iptables can't do as nftables does is in iptables.Differences.
package legacy
