package model

import (
	"cmp"
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
	all := n.All || n.surprises(f)
	for _, a := range local {
		if all || contains(n.CIDRs, a) {
			list = append(list, a)
		}
	}
	return addrsOf(f, list)
}

// surprises reports whether a list of nothing but ranges has none of a family. As with
// kube-proxy, the family's node ports then answer on all addresses: clusters rely on it.
func (n NodePortAddresses) surprises(f Family) bool {
	return len(n.CIDRs) > 0 && !n.Primary && !slices.ContainsFunc(n.CIDRs, func(p netip.Prefix) bool {
		return FamilyOf(p.Addr()) == f
	})
}

// Surprises returns the families of which the list has no range, so that their node ports answer on all addresses.
func (n NodePortAddresses) Surprises() []Family {
	var list []Family
	for _, f := range Families {
		if !n.All && n.surprises(f) {
			list = append(list, f)
		}
	}
	return list
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
	slices.SortFunc(list, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	var apart []netip.Prefix
	for _, p := range list {
		if n := len(apart); n == 0 || !apart[n-1].Contains(p.Addr()) {
			apart = append(apart, p)
		}
	}
	return apart
}
