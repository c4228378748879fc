// Package host keeps a legacy node's dataplane in line with snapshots: the rules of
// legacy/iptables, or the plan of legacy/ipvs.
//
// It runs the programs iptables-restore and iptables-save, of whichever variant works on the
// node, and speaks netlink for all else. What it finds on the node it compares with what
// should be there, and writes the difference.
package host
