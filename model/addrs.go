package model

import (
	"net/netip"
	"slices"
)

// of returns the addresses of one family on which node ports answer, sorted. All but the primary one are addresses of
// interfaces or, if these are unknown, as in a dry run, of the Node.
func (n NodePortAddresses) of(f Family, primary netip.Addr, node, host []netip.Addr) []netip.Addr {
	var list []netip.Addr
	if n.Primary && primary.IsValid() {
		list = append(list, primary)
	}
	local := host
	if len(host) == 0 {
		local = node
	}
	ofFamily := func(p netip.Prefix) bool { return FamilyOf(p.Addr()) == f }
	// Without a primary address of the family, kube-proxy has no restriction for it either.
	unknown := n.Primary && !primary.IsValid() && !slices.ContainsFunc(n.CIDRs, ofFamily)
	for _, a := range local {
		if n.All || n.Unlisted[f] || unknown || contains(n.CIDRs, a) {
			list = append(list, a)
		}
	}
	return addrsOf(f, list)
}

// primary returns the node's primary address of a family: the configured one, or the first of
// the Node object or, without a Node object, as with manifests, the first of the interfaces.
func primary(f Family, configured netip.Addr, node, host []netip.Addr) netip.Addr {
	if configured.IsValid() && FamilyOf(configured) == f {
		return configured
	}
	from := node
	if len(node) == 0 {
		from = host
	}
	for _, a := range from {
		if FamilyOf(a) == f {
			return a
		}
	}
	return netip.Addr{}
}

// addrsOf returns the addresses of one family, sorted, each once.
func addrsOf(f Family, all []netip.Addr) []netip.Addr {
	var list []netip.Addr
	for _, a := range all {
		if FamilyOf(a) == f {
			list = append(list, a)
		}
	}
	slices.SortFunc(list, netip.Addr.Compare)
	return slices.Compact(list)
}

func contains(prefixes []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}

// prefixesOf returns the prefixes of one family, sorted, without those inside another.
func prefixesOf(f Family, all []netip.Prefix) []netip.Prefix {
	var list []netip.Prefix
	for _, p := range all {
		if FamilyOf(p.Addr()) == f {
			list = append(list, p.Masked())
		}
	}
	slices.SortFunc(list, netip.Prefix.Compare)
	var apart []netip.Prefix
	for _, p := range list {
		if n := len(apart); n == 0 || !apart[n-1].Contains(p.Addr()) {
			apart = append(apart, p)
		}
	}
	return apart
}
