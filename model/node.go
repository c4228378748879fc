package model

import (
	"net/netip"
	"reflect"
	"slices"
)

// TaintToBeDeleted is on a Node that the cluster autoscaler is about to delete.
const TaintToBeDeleted = "ToBeDeletedByClusterAutoscaler"

// NodeState is the state of the Node object, as load balancers need it.
type NodeState struct {
	// Known: there is a Node object.
	Known bool
	// Eligible: load balancers may send new connections to this node. They must not while it
	// is being deleted, or has the taint TaintToBeDeleted (KEP-3836).
	Eligible bool
}

// Node returns the state of the Node object.
func (s *Snapshot) Node() NodeState { return s.node }

func (b *Builder) nodeState() NodeState {
	if b.node == nil {
		return NodeState{}
	}
	return NodeState{Known: true, Eligible: !b.node.Deleting && !slices.Contains(b.node.Taints, TaintToBeDeleted)}
}

// SetNode adds or replaces a Node. It ignores all but this node's.
func (b *Builder) SetNode(n Node) {
	if n.Name != b.config.NodeName {
		return
	}
	if b.node != nil && reflect.DeepEqual(*b.node, n) {
		return // kubelet writes its status every few minutes
	}
	n.Addresses, n.PodCIDRs, n.Taints = slices.Clone(n.Addresses), slices.Clone(n.PodCIDRs), slices.Clone(n.Taints)
	b.node = &n
	b.settingsStale = true
}

// DeleteNode removes a Node.
func (b *Builder) DeleteNode(name string) {
	if name != b.config.NodeName || b.node == nil {
		return
	}
	b.node = nil
	b.settingsStale = true
}

// parseNode checks the addresses and pod ranges of the Node object.
func (b *Builder) parseNode() (addrs []netip.Addr, podCIDRs []netip.Prefix) {
	found := problemList{object: ObjectRef{"Node", NamespacedName{Name: b.config.NodeName}}}
	if b.node != nil {
		addrs = parseAll(&found, "status.addresses[%d].address", b.node.Addresses, parseUnicast)
		podCIDRs = parseAll(&found, "spec.podCIDRs[%d]", b.node.PodCIDRs, parsePrefix)
		if b.config.LocalPods.Mode == ByNodeCIDR && len(podCIDRs) == 0 {
			found.add("spec.podCIDRs", "is empty: until it is set, pods can't be told from other clients")
		}
	}
	b.setProblems(found.object, found.list)
	return addrs, podCIDRs
}
