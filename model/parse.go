package model

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"unique"
)

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

// maxLabel is the length of a DNS label (RFC 1035, 2.3.4).
const maxLabel = 63
