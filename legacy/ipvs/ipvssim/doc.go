// Package ipvssim asks what becomes of a packet where virtual servers, ipsets, the dummy
// device and the companion rules are what an [ipvs.Content] says, also half-way through a
// plan.
//
// A packet passes the hooks that it would pass in the kernel:
//
//	from the network: mangle PREROUTING ──> local? ──> filter INPUT ──> IPVS ──> real server
//	                                          └──> filter FORWARD          └──> the node itself
//	from the node:    mangle OUTPUT ──> IPVS ──> real server
//	                                      └──> filter OUTPUT ──> as routed
//	to a real server: mangle OUTPUT, filter OUTPUT, nat POSTROUTING; but one on the node gets
//	                  what came from the network without them
//
// The companion's rules are run by iptsim, as iptables-restore would load them. What a scheduler
// chooses is not rolled but explored: each real server that has a weight gets the same share.
//
// [Apply] carries out the operations of a plan on a Content, as strictly as a kernel.
package ipvssim
