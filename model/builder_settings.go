package model

import (
	"maps"
	"net/netip"
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
	last := &b.nodeFacts
	b.remembers.addrs = learn(&last.Addrs, parseAll(&found, "status.addresses[%d].address", n.Addresses, parseUnicast))
	b.remembers.podCIDRs = learn(&last.PodCIDRs, parseAll(&found, "spec.podCIDRs[%d]", n.PodCIDRs, ParsePrefix))
	last.zone = n.Zone // the label can be removed from a Node
	n.Addresses, n.PodCIDRs, n.Taints = slices.Clone(n.Addresses), slices.Clone(n.PodCIDRs), slices.Clone(n.Taints)
	last.Taints = n.Taints
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
	b.node, b.nodeProblems, b.nodeFacts.Taints = nil, nil, nil
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

func (b *Builder) updateNodeProblems() {
	found := problemList{object: b.nodeRef(), list: slices.Clip(b.nodeProblems)}
	last := b.nodeFacts
	if b.node == nil && (len(last.Addrs)+len(last.PodCIDRs) > 0 || last.zone != "") {
		found.add("metadata.name", "no Node has it any more: the last known addresses, pod ranges and zone stay in use")
	}
	if b.node != nil && b.remembers.addrs {
		found.add("status.addresses", "is empty: the last known ones stay in use: %v", last.Addrs)
	}
	if b.node != nil && b.remembers.podCIDRs {
		found.add("spec.podCIDRs", "is empty: the last known ones stay in use: %v", last.PodCIDRs)
	}
	if b.node != nil && b.config.LocalPods.Mode == ByNodeCIDR && len(last.PodCIDRs) == 0 {
		found.add("spec.podCIDRs", "is empty: until it is set, pods can't be distinguished from other clients")
	}
	b.setProblems(found.object, found)
}

// SetHostAddresses replaces the addresses of the node's interfaces other than loopback, the
// preferred one of each family first.
func (b *Builder) SetHostAddresses(addrs []netip.Addr) {
	if slices.Equal(b.hostAddrs, addrs) {
		return
	}
	b.hostAddrs = slices.Clone(addrs)
	b.settingsStale = true
}

// SetServiceCIDR adds or replaces a ServiceCIDR.
func (b *Builder) SetServiceCIDR(in ServiceCIDR) {
	found := problemList{object: ObjectRef{"ServiceCIDR", NamespacedName{Name: in.Name}}}
	b.cidrs[in.Name] = parseAll(&found, "spec.cidrs[%d]", in.CIDRs, ParsePrefix)
	b.setProblems(found.object, found)
	b.settingsStale = true
}

// DeleteServiceCIDR removes a ServiceCIDR. It may be unknown.
func (b *Builder) DeleteServiceCIDR(name string) {
	if _, ok := b.cidrs[name]; !ok {
		return
	}
	delete(b.cidrs, name)
	b.setProblems(ObjectRef{"ServiceCIDR", NamespacedName{Name: name}}, problemList{})
	b.settingsStale = true
}

// updateSettings makes the settings anew, and marks all Services if they depend on a change.
func (b *Builder) updateSettings(next *Snapshot) {
	b.updateNodeProblems()
	nodeAddrs, podCIDRs := b.nodeFacts.Addrs, b.nodeFacts.PodCIDRs
	var cidrs []netip.Prefix
	for _, name := range slices.Sorted(maps.Keys(b.cidrs)) {
		cidrs = append(cidrs, b.cidrs[name]...)
	}
	now := locality{zone: b.nodeFacts.zone}
	for _, f := range Families {
		now.primary[f] = primary(f, b.config.PrimaryAddress, nodeAddrs, b.hostAddrs)
		s := &Settings{
			MasqueradeAll: b.config.MasqueradeAll,
			DropInvalid:   b.config.DropInvalid,
			Localhost:     b.config.NodePortAddresses.Localhost[f],
			ServiceCIDRs:  prefixesOf(f, cidrs),
			Pods:          b.config.LocalPods.sources(f, podCIDRs),
			NodeAddrs:     addrsOf(f, slices.Concat(nodeAddrs, b.hostAddrs)),
			NodePortAddrs: b.config.NodePortAddresses.of(f, now.primary[f], nodeAddrs, b.hostAddrs),
		}
		if fs := &next.families[f]; !reflect.DeepEqual(s, fs.Settings) {
			fs.Settings = s
		}
	}
	scope := addrScope{allowed: b.config.ExternalAddresses, serviceCIDRs: cidrs}
	if scope.allowed.NoNodeAddresses {
		scope.nodeAddrs = slices.Concat(nodeAddrs, b.hostAddrs)
	}
	b.setAddrScope(scope)
	if now != b.locality {
		b.locality = now
		for _, r := range b.records {
			if r.service != nil {
				b.markDirty(r)
			}
		}
	}
}

// setAddrScope decides again which addresses are refused, if that depends on a change.
func (b *Builder) setAddrScope(now addrScope) {
	if reflect.DeepEqual(b.addrScope, now) {
		return
	}
	b.addrScope = now
	for _, r := range b.records {
		s := r.service
		if s != nil && slices.ContainsFunc(s.addrs, func(a serviceAddr) bool { return a.kind != ClusterIP }) {
			b.withdraw(s)
			b.claim(s)
			b.markDirty(r)
		}
	}
}

// Settings are the values of a family that do not depend on Services. Two snapshots
// share the pointer if none of the values differs.
type Settings struct {
	NodeAddrs     []netip.Addr   // this node's known addresses, sorted
	NodePortAddrs []netip.Addr   // on which node ports answer, sorted
	Localhost     bool           // node ports also answer on loopback, see ServicePort.Loopback
	ServiceCIDRs  []netip.Prefix // of which addresses without a Service are dropped, sorted
	Pods          PodSources     // identify connections of pods
	MasqueradeAll bool           // masquerade connections of pods to cluster IPs, too
	DropInvalid   bool           // drop INVALID packets of ServiceEndpoints
}

// PodSources identify connections of pods. The zero value can't.
type PodSources struct {
	CIDRs     []netip.Prefix // of pods' addresses, sorted
	Interface string         // by which packets of pods come in
	Wildcard  bool           // Interface is a prefix of the names of several
}

// Known reports whether connections from pods can be identified.
func (p PodSources) Known() bool { return len(p.CIDRs) > 0 || p.Interface != "" }

// Contains reports whether a connection with a source address and an input interface, which
// is "" for the node's own, is from a pod.
func (p PodSources) Contains(source netip.Addr, iface string) bool {
	switch {
	case p.Interface == "":
		return contains(p.CIDRs, source)
	case p.Wildcard:
		return strings.HasPrefix(iface, p.Interface)
	}
	return iface == p.Interface
}

func (l LocalPods) sources(f Family, podCIDRs []netip.Prefix) PodSources {
	switch l.Mode {
	case ByNodeCIDR:
		return PodSources{CIDRs: prefixesOf(f, podCIDRs)}
	case ByBridge:
		return PodSources{Interface: l.Interface}
	case ByInterfacePrefix:
		// A prefix of full length is a name, and nft and iptables take no more.
		return PodSources{Interface: l.Interface, Wildcard: len(l.Interface) < MaxInterface}
	case ByClusterCIDR:
	}
	return PodSources{CIDRs: prefixesOf(f, l.ClusterCIDRs)}
}
