package kube

import (
	"net/netip"
	"testing"

	netutils "k8s.io/utils/net"

	"github.com/vmapd/vmapd/model"
)

// Objects are as old as their cluster, and an API server once accepted whatever Go's package net then did.
func TestAddressesAndRangesAreReadAsKubeProxyDoes(t *testing.T) {
	addrs := []string{
		"10.0.0.1", "010.000.000.001", "0010.00.0.00000001", "1.2.3.0400", "256.1.1.1", "1.2.3", "1.2.3.4.5",
		"1.2..4", "0x10.0.0.1", "", "0", ".", "fd00::1", "fd00:00001::0001", "fd00::00000000", "fd00::010000",
		"::ffff:10.0.0.1", "::ffff:010.000.000.001", "::ffff:0a00:0001", "fd00:::1",
		" 10.0.0.1", "10.0.0.1 ", "fe80::1%eth0", "1.2.3.+4", "1.2.3.-4", "00000:0::0", "::", "0.0.0.0", "000.000.000.000",
	}
	lengths := []string{"/0", "/00", "/8", "/008", "/32", "/033", "/0128", "/129", "/", "/+8", "/ 8", "/8/8", "/0x8", "", "/ff"}
	for _, s := range addrs {
		a, ok := netip.AddrFromSlice(netutils.ParseIPSloppy(s))
		if got, err := model.ParseAddr(s); got != a.Unmap() || (err == nil) != ok {
			t.Errorf("%q: got %v, %v; kube-proxy has %v, %v", s, got, err, a.Unmap(), ok)
		}
		for _, bits := range lengths {
			r := s + bits
			want, ok := netip.Prefix{}, false
			if _, n, err := netutils.ParseCIDRSloppy(r); err == nil {
				a, _ := netip.AddrFromSlice(n.IP)
				ones, _ := n.Mask.Size()
				want, ok = netip.PrefixFrom(a.Unmap(), ones), true
			}
			got, err := model.ParsePrefix(r)
			if mapped := a.Is4In6() && ok && s != "" && s[0] == ':'; mapped || s != "" && (s[0] == ' ' || s[len(s)-1] == ' ') {
				continue // the model takes them for IPv4, and takes spaces away, as kube-proxy does before
			}
			if got != want || (err == nil) != ok {
				t.Errorf("%q: got %v, %v; kube-proxy has %v, %v", r, got, err, want, ok)
			}
		}
	}
}
