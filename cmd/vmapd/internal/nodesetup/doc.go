// Package nodesetup sets what connections through the node depend on and no rule can
// say: the size and the timeouts of the kernel's connection tracking table, and how
// unwilling the kernel is to kill this process when memory runs out.
//
//	Conntrack ──┐
//	            ├─> Plan ─> []Write ─> Apply
//	Facts ──────┘  (pure)             (files below /proc/sys and /sys)
//
// The rules are kube-proxy's, with one exception. There, a node that refuses to be set
// is fatal; here it is a warning, an event and nothing more: limits and timeouts are
// advice about load, and a node without Services is worse than one with the kernel's
// own limits. What is right already is not written, so whoever lacks the privilege has
// no trouble after [InitOnly] ran with it.
//
// What a single dataplane needs, like the settings of IPVS, is that dataplane's matter.
package nodesetup
