// Package ipvssim runs connections through the virtual servers, ipsets, dummy device and
// iptables rules of an [ipvs.State], also when a plan is partly done.
//
// A packet passes the hooks in the kernel's order:
//
//	from the network: local? ──> mangle INPUT, filter INPUT ──> IPVS ──> real server
//	                    └──> mangle FORWARD, filter FORWARD       └──> the node itself
//	from the node:    mangle OUTPUT ──> IPVS ──> real server
//	                                      └──> filter OUTPUT ──> as routed
//	to a real server: mangle OUTPUT, filter OUTPUT, nat POSTROUTING; but none of them from the
//	                  network to a real server on the node
//
// iptsim runs its iptables rules, as iptables-restore would load them. All choices of a
// scheduler are explored: each real server gets a share by its weight.
//
// [Apply] carries out the operations of a plan on a Content, as strictly as a kernel.
package ipvssim
