package config

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/model"
)

func TestParseNodePortAddresses(t *testing.T) {
	cidrs := func(list ...string) []netip.Prefix {
		var all []netip.Prefix
		for _, s := range list {
			all = append(all, netip.MustParsePrefix(s))
		}
		return all
	}
	type where = model.NodePortAddresses
	for _, tt := range []struct {
		name string
		flag []string
		want where
		bad  bool
	}{
		{"an empty list is primary", nil, where{Primary: true}, false},
		{
			"ranges",
			[]string{"10.0.0.0/8", "primary", "fd00:10::/64"},
			where{Primary: true, CIDRs: cidrs("10.0.0.0/8", "fd00:10::/64")},
			false,
		},
		{"an IPv4-mapped range", []string{"::ffff:10.0.0.0/104"}, where{CIDRs: cidrs("10.0.0.0/8"), Unlisted: [2]bool{model.IPv6: true}}, false},
		{"loopback of IPv4", []string{"127.0.0.0/8"}, where{Localhost: [2]bool{true, false}, Unlisted: [2]bool{model.IPv6: true}}, false},
		{"one address of loopback", []string{"127.0.0.1/32"}, where{Localhost: [2]bool{true, false}, Unlisted: [2]bool{model.IPv6: true}}, false},
		{"loopback of IPv6", []string{"::1/128"}, where{Localhost: [2]bool{false, true}, Unlisted: [2]bool{model.IPv4: true}}, false},
		{"IPv4-mapped loopback", []string{"::ffff:127.0.0.0/104"}, where{Localhost: [2]bool{true, false}, Unlisted: [2]bool{model.IPv6: true}}, false},
		{
			"a range of everything is without loopback",
			[]string{"0.0.0.0/0", "::/0"},
			where{CIDRs: cidrs("0.0.0.0/0", "::/0")},
			false,
		},
		{"another part of loopback", []string{"127.0.2.0/28", "::/0"}, where{CIDRs: cidrs("127.0.2.0/28", "::/0")}, false},
		{"localhost is of both families", []string{"localhost", "10.0.0.0/8"}, where{Localhost: [2]bool{true, true}, CIDRs: cidrs("10.0.0.0/8")}, false},
		{"a word that has no meaning", []string{"10.0.0.0/8", "secondary"}, where{CIDRs: cidrs("10.0.0.0/8")}, true},
		{"no CIDR", []string{"10.0.0.0/33"}, where{}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseNodePortAddresses(tt.flag)
			if tt.bad != (err != nil) {
				t.Errorf("error: %v, wanted: %v", err, tt.bad)
			}
			if diff := cmp.Diff(tt.want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
