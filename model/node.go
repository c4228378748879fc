package model

import "net/netip"

// TaintToBeDeleted is on a Node that the cluster autoscaler is about to delete.
const TaintToBeDeleted = "ToBeDeletedByClusterAutoscaler"

// NodeState is the state of the Node object, as load balancers need it.
type NodeState struct {
	// Known: there is a Node object.
	Known bool
	// Eligible: load balancers may send new connections to this node. They must not while it
	// is being deleted, or has the taint TaintToBeDeleted (KEP-3836), or while its addresses
	// are remembered from a former version.
	Eligible bool
	// Why is the reason if there is a Node object that is not eligible.
	Why string
}

// NodeObject has facts of the Node object, the last known ones if it is gone. Nothing changes them.
type NodeObject struct {
	Addrs    []netip.Addr
	PodCIDRs []netip.Prefix
}
