// Package legacy is the place of the backends for nodes whose kernel has no nftables to
// speak of: iptables-restore text and IPVS virtual servers, made from the same snapshots
// as nft. There are none yet.
package legacy
