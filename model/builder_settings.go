package model

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"
)

// SetConfig replaces the configuration for the next snapshot. NodeName and Budgets can't
// change: the Builder keeps of each endpoint only whether it is on this node, and of each
// Service only the part that is served.
func (b *Builder) SetConfig(c Config) {
	old := b.config
	c.NodeName, c.Budgets = old.NodeName, old.Budgets
	c = c.withDefaults()
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

// setAddrScope decides again which addresses are refused, if that depends on a change.
func (b *Builder) setAddrScope(now addrScope) {
	if reflect.DeepEqual(b.addrScope, now) {
		return
	}
	b.addrScope = now
	for _, r := range b.records {
		if s := r.service; s != nil && s.refuse(&now, false) {
			b.withdraw(s)
			b.claim(s)
			b.markDirty(r)
		}
	}
}
