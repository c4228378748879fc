// Package leftovers finds and removes what other Service proxies left on a node, and what vmapd itself left with
// another backend: tables of nftables, chains of iptables, virtual servers, ipsets and dummy devices.
//
//	Finder ──> Found ──> Remove, RemoveOwn: vmapd cleanup
//	                └──> Sweeper: after the daemon's first round, until nothing is left
package leftovers
