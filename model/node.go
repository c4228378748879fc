package model

import (
	"cmp"
	"net/netip"
	"slices"
)

// choose returns the addresses of one family on which node ports answer, sorted.
//
// The primary address is the first that the Node object has of the family. Without
// a Node object, as when running from manifests, it is the first of the interfaces'.
// The others are the interfaces' addresses; only where these are unknown, as in a dry
// run, the Node's stand in for them.
func (n NodePortAddresses) choose(f Family, node, host []netip.Addr) []netip.Addr {
	var chosen []netip.Addr
	if n.Primary {
		from := node
		if len(node) == 0 {
			from = host
		}
		if i := slices.IndexFunc(from, func(a netip.Addr) bool { return FamilyOf(a) == f }); i >= 0 {
			chosen = append(chosen, from[i])
		}
	}
	local := host
	if len(host) == 0 {
		local = node
	}
	for _, a := range local {
		if FamilyOf(a) == f && (n.All || contains(n.CIDRs, a)) {
			chosen = append(chosen, a)
		}
	}
	slices.SortFunc(chosen, netip.Addr.Compare)
	return slices.Compact(chosen)
}

func contains(prefixes []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}

// prefixesOf returns those of one family, sorted, without those inside another.
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
