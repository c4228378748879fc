package model

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
)

// Settings are the values of a family that do not depend on Services. Two snapshots
// share the pointer if none of the values differs.
type Settings struct {
	NodeAddrs     []netip.Addr   // this node's known addresses, sorted
	NodePortAddrs []netip.Addr   // on which node ports answer, sorted
	Localhost     bool           // node ports also answer on loopback, see ServicePort.Loopback
	ServiceCIDRs  []netip.Prefix // of which addresses without a Service are dropped, sorted
	Pods          PodSources     // tell connections of pods
	MasqueradeAll bool           // masquerade connections of pods to cluster IPs, too
	DropInvalid   bool           // drop INVALID packets of ServiceEndpoints
}

// PodSources tell connections of pods from others. The zero value can't.
type PodSources struct {
	CIDRs     []netip.Prefix // of pods' addresses, sorted
	Interface string         // by which packets of pods come in
	Wildcard  bool           // Interface is a prefix of the names of several
}

// Known reports whether connections from pods can be told from others.
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

// SetConfig replaces the configuration for the next snapshot. NodeName and Budgets can't
// change: the Builder keeps of each endpoint only whether it is on this node, and of each
// Service only the part that is served.
func (b *Builder) SetConfig(c Config) {
	c.NodeName, c.Budgets = b.config.NodeName, b.config.Budgets
	old := b.config
	b.config = c
	b.settingsStale = true
	if old.Algorithm != c.Algorithm || old.TableSize != c.TableSize || old.ConnectionGrace != c.ConnectionGrace || old.ServiceCounters != c.ServiceCounters {
		b.markServices()
	}
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
	nodeAddrs, podCIDRs := b.nodeFacts.addrs, b.nodeFacts.podCIDRs
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
		b.markServices()
	}
}

// sources returns the PodSources of one family.
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
