// Package nodesetup sets what all connections through the node depend on: the size and the timeouts of the kernel's
// connection tracking table, whether packets on bridges meet netfilter, and the OOM score of this process.
//
//	Conntrack, CPUs, files ── Plan (pure) ──> []Write ── Apply ──> files below /proc/sys and /sys
//
// The rules are kube-proxy's, with one exception: if a setting cannot be written, kube-proxy exits, and vmapd logs a
// warning and sends an event. These settings are advice about load; a node without Services is worse than one with the
// kernel's own limits. The limit of connections and the size of the hash table are raised, never lowered; where nodes
// are containers, they are the host's, and stay. Values that are right already are not written, so the daemon needs no
// privilege for them after an init container with --init-only.
//
// Settings of one dataplane alone, like those of IPVS, belong to that dataplane.
package nodesetup
