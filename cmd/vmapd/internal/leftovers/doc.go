// Package leftovers finds and removes what other Service proxies left on a node, and what vmapd itself left with
// another backend: tables of nftables, chains of iptables, virtual servers, ipsets and dummy devices.
//
//	Finder ──> Found, each with its removal ──> Remove, RemoveOwn: vmapd cleanup
//	                                       └──> Sweeper: after the first round, until nothing is left
package leftovers
