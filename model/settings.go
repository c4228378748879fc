package model

import (
	"net/netip"
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
