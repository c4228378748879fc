package model

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"unique"

	"github.com/vmapd/vmapd/model/persist"
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

// The orders of persistent maps, by service port, by address and by VIP.
var (
	ServicePortKeys = persist.KeyFuncs[ServicePortName]{Hash: hashServicePortName, Compare: compareServicePortNames}
	AddrKeys        = persist.KeyFuncs[netip.Addr]{Hash: hashAddr, Compare: netip.Addr.Compare}
	VIPKeys         = persist.KeyFuncs[VIP]{Hash: hashVIP, Compare: compareVIPs}
)

var (
	portKeys = persist.KeyFuncs[*ServicePortName]{
		Hash:    func(n *ServicePortName) uint64 { return hashServicePortName(*n) },
		Compare: func(a, b *ServicePortName) int { return compareServicePortNames(*a, *b) },
	}
	nameKeys = persist.KeyFuncs[NamespacedName]{Hash: hashName, Compare: compareNames}
)

// FNV-1a hashes to the same value in every process, so that output is reproducible.
const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

func hashServicePortName(n ServicePortName) uint64 {
	h := uint64(fnvOffset)
	for _, s := range [...]string{n.Namespace, n.Name, n.Port} {
		for i := range len(s) {
			h = (h ^ uint64(s[i])) * fnvPrime
		}
		h = (h ^ 0xff) * fnvPrime // no name has this byte: "a"+"bc" is not "ab"+"c"
	}
	return (h ^ uint64(n.Protocol)) * fnvPrime
}

func hashName(n NamespacedName) uint64 {
	return hashServicePortName(ServicePortName{NamespacedName: n})
}

func hashAddr(a netip.Addr) uint64 {
	h := uint64(fnvOffset)
	for _, c := range a.As16() {
		h = (h ^ uint64(c)) * fnvPrime
	}
	return h
}

func hashVIP(v VIP) uint64 {
	h := hashAddr(v.Addr)
	for _, c := range [...]byte{byte(v.Protocol), byte(v.Port >> 8), byte(v.Port)} {
		h = (h ^ uint64(c)) * fnvPrime
	}
	return h
}

func compareVIPs(a, b VIP) int {
	return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
}

// ParseAddr reads an address of an object, as kube-proxy does. Numbers with leading zeros
// (decimal in IPv4, KEP-4858) and IPv4-mapped IPv6 addresses still exist in old objects.
func ParseAddr(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err != nil {
		if a, err = netip.ParseAddr(withoutLeadingZeros(s)); err != nil {
			return netip.Addr{}, fmt.Errorf("%q is not an IP address", s)
		}
	}
	if a.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("%q has a zone", s)
	}
	return a.Unmap(), nil
}

// parseUnicast is ParseAddr for addresses that are possible destinations of connections.
func parseUnicast(s string) (netip.Addr, error) {
	a, err := ParseAddr(s)
	switch {
	case err != nil:
	case a.IsUnspecified():
		err = fmt.Errorf("%q is the unspecified address", s)
	case a.IsLoopback():
		err = fmt.Errorf("%q is a loopback address", s)
	case a.IsMulticast():
		err = fmt.Errorf("%q is a multicast address", s)
	}
	return a, err
}

// leadingZeros are those of a number of an address or a range.
var leadingZeros = regexp.MustCompile(`(^|[.:/])0+([0-9a-fA-F])`)

func withoutLeadingZeros(s string) string { return leadingZeros.ReplaceAllString(s, "$1$2") }

// ParsePrefix is ParseAddr for ranges, which may have spaces around them.
func ParsePrefix(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(withoutLeadingZeros(strings.TrimSpace(s)))
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is not a CIDR", s)
	}
	if p.Addr().Is4In6() {
		if p.Bits() < 96 {
			return netip.Prefix{}, fmt.Errorf("%q mixes IPv4 and IPv6", s)
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked(), nil
}

func parsePort(n int32) (uint16, error) {
	if n < 1 || n > 65535 {
		return 0, fmt.Errorf("%d is not between 1 and 65535", n)
	}
	return uint16(n), nil
}

// shared returns an equal string that many objects share: decoders make a string of its own
// for each name of a namespace, port or zone.
func shared(s string) string { return unique.Make(s).Value() }

// checkName checks the name of a Service as an API server does. Names end up in the names of sets and chains and in
// comments, where a kernel that refuses one would refuse every Service of the family. A name is a DNS label.
func checkName(n NamespacedName) (field string, err error) {
	if err := checkLabel(n.Namespace); err != nil {
		return "metadata.namespace", err
	}
	return "metadata.name", checkLabel(n.Name)
}

// checkLabel checks a DNS label as RFC 1123 has it.
func checkLabel(s string) error {
	odd := func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' }
	switch {
	case len(s) > maxLabel:
		return fmt.Errorf("%q has %d characters, a DNS label has %d at most", s, len(s), maxLabel)
	case s == "", s[0] == '-', s[len(s)-1] == '-', strings.ContainsFunc(s, odd):
		return fmt.Errorf("%q is not a DNS label", s)
	}
	return nil
}

// maxLabel is the length of a DNS label (RFC 1035, 2.3.4), to which an API server limits the names
// of namespaces, of Services and of their ports.
const maxLabel = 63
