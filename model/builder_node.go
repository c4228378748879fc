package model

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// SetNode adds or replaces a Node. It ignores all but this node's.
func (b *Builder) SetNode(n Node) {
	if n.Name != b.config.NodeName {
		return
	}
	if b.node != nil && reflect.DeepEqual(*b.node, n) {
		return // kubelet writes its status every few minutes
	}
	found := problemList{object: b.nodeRef()}
	// The label of the zone can be removed from a Node; the other facts can't.
	unlabelled := b.node != nil && b.node.UID == n.UID && b.node.Zone != ""
	last := &b.nodeFacts
	b.remembers.addrs = learn(&last.addrs, parseAll(&found, "status.addresses[%d].address", n.Addresses, parseUnicast))
	b.remembers.podCIDRs = learn(&last.podCIDRs, parseAll(&found, "spec.podCIDRs[%d]", n.PodCIDRs, ParsePrefix))
	b.remembers.zone = n.Zone == "" && last.zone != "" && !unlabelled
	if !b.remembers.zone {
		last.zone = n.Zone
	}
	n.Addresses, n.PodCIDRs, n.Taints = slices.Clone(n.Addresses), slices.Clone(n.PodCIDRs), slices.Clone(n.Taints)
	b.node, b.nodeProblems = &n, found.list
	b.settingsStale = true
}

// learn replaces the last known facts unless there are none any more. Then it reports that these are remembered.
func learn[T any](last *[]T, now []T) (remembered bool) {
	if len(now) == 0 && len(*last) > 0 {
		return true
	}
	*last = now
	return false
}

// DeleteNode removes a Node.
func (b *Builder) DeleteNode(name string) {
	if name != b.config.NodeName || b.node == nil {
		return
	}
	b.node, b.nodeProblems = nil, nil
	b.settingsStale = true
}

func (b *Builder) nodeState() NodeState {
	if b.node == nil {
		return NodeState{}
	}
	state := NodeState{Known: true}
	switch {
	case b.node.Deleting:
		state.Why = "is being deleted"
	case slices.Contains(b.node.Taints, TaintToBeDeleted):
		state.Why = "has the taint " + TaintToBeDeleted
	case b.remembers.addrs:
		state.Why = "has no address"
	default:
		state.Eligible = true
	}
	return state
}

func (b *Builder) nodeRef() ObjectRef {
	return ObjectRef{"Node", NamespacedName{Name: b.config.NodeName}}
}

// updateNodeProblems sets the problems of the Node object.
func (b *Builder) updateNodeProblems() {
	found := problemList{object: b.nodeRef(), list: slices.Clip(b.nodeProblems)}
	last := b.nodeFacts
	switch {
	case b.node == nil:
		if len(last.addrs)+len(last.podCIDRs) > 0 || last.zone != "" {
			found.add("metadata.name", "no Node has it any more: the last known addresses, pod ranges and zone stay in use")
		}
	case b.remembers.addrs:
		found.add("status.addresses", "is empty: the last known ones stay in use (%s)", listed(last.addrs))
	}
	if b.node != nil && b.remembers.podCIDRs {
		found.add("spec.podCIDRs", "is empty: the last known ones stay in use (%s)", listed(last.podCIDRs))
	}
	if b.node != nil && b.remembers.zone {
		found.add("metadata.labels", "%s is missing since the Node was made anew: the last known zone stays in use (%q)", LabelZone, last.zone)
	}
	if b.node != nil && b.config.LocalPods.Mode == ByNodeCIDR && len(last.podCIDRs) == 0 {
		found.add("spec.podCIDRs", "is empty: until it is set, pods can't be told from other clients")
	}
	b.setProblems(found.object, found)
}

// listed returns a list as text.
func listed[T fmt.Stringer](list []T) string {
	texts := make([]string, len(list))
	for i, v := range list {
		texts[i] = v.String()
	}
	return strings.Join(texts, ", ")
}
