// Package host applies snapshots to a node without nftables: by the rules of legacy/iptables, or
// by the plans of legacy/ipvs.
//
// It runs iptables-restore and iptables-save, of the variant that works on the node, and ipset, and uses netlink for
// everything else. It reads the node's state, compares it with the desired one, and writes the difference.
//
// It also finds and removes what other backends and kube-proxy left: chains of iptables-legacy by its
// programs, the rest over netlink; those of iptables-nft in nft/others.
package host
