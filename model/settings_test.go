package model_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

func TestNodePortAddresses(t *testing.T) {
	type where = model.NodePortAddresses
	// Two addresses of each family, one of them not in the Node object.
	host := []netip.Addr{
		netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("192.168.0.2"), netip.MustParseAddr("fd00:10::1"),
	}
	node := modeltest.NewNode("node-1", "192.168.0.2", "192.168.1.2", "fd00:192:168::2")
	for _, tt := range []struct {
		name string
		on   where
		node bool
		host []netip.Addr
		want []string
	}{
		{"primary: the Node object's first of each family", where{Primary: true}, true, host, []string{"192.168.0.2", "fd00:192:168::2"}},
		{"without a Node object, the interfaces' first", where{Primary: true}, false, host, []string{"10.0.0.1", "fd00:10::1"}},
		{"without either, none", where{Primary: true}, false, nil, []string{}},
		{"a CIDR: the interfaces' addresses in it", where{CIDRs: prefixes("192.168.0.0/16", "fd00:192::/32")}, true, host, []string{"192.168.0.2"}},
		{"a family without a range: all", where{CIDRs: prefixes("10.0.0.0/8"), Unlisted: [2]bool{model.IPv6: true}}, true, host, []string{"10.0.0.1", "fd00:10::1"}},
		{"a CIDR in which the node has no address", where{CIDRs: prefixes("203.0.113.0/24", "2001:db8::/32")}, true, host, []string{}},
		{"everything is without loopback", where{CIDRs: prefixes("0.0.0.0/0", "::/0")}, true, host, []string{"10.0.0.1", "192.168.0.2", "fd00:10::1"}},
		{"primary of a family that the Node object lacks: all", where{Primary: true}, true, []netip.Addr{netip.MustParseAddr("2001:db8::1")}, []string{"192.168.0.2", "2001:db8::1"}},
		{"primary and a CIDR", where{Primary: true, CIDRs: prefixes("10.0.0.0/8")}, true, host, []string{"10.0.0.1", "192.168.0.2", "fd00:192:168::2"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := model.NewBuilder(model.Config{NodeName: "node-1", NodePortAddresses: tt.on})
			if strings.Contains(tt.name, "lacks") {
				modeltest.NewNode("node-1", "192.168.0.2").Set(b)
			} else if tt.node {
				node.Set(b)
			}
			b.SetHostAddresses(tt.host)
			got := []string{}
			for _, f := range model.Families {
				for _, a := range b.Snapshot().Family(f).NodePortAddrs {
					got = append(got, a.String())
				}
			}
			testaid.Equal(t, "addresses", tt.want, got)
		})
	}
}

func TestServiceCIDRs(t *testing.T) {
	b := modeltest.Builder(modeltest.Config(),
		modeltest.NewServiceCIDR("kubernetes", "172.30.0.0/16", "fd00:172:30::/112"),
		modeltest.NewServiceCIDR("extra", "172.31.7.7/24", "172.30.5.0/24", "255.255.0.0/16"),
		modeltest.NewServiceCIDR("bad", "172.30.0.0", "10.0.0.0/33", "172.29.0.0/24"))
	check := func(want4, want6 []string) {
		t.Helper()
		for f, want := range [][]string{want4, want6} {
			got := []string{}
			for _, p := range b.Snapshot().Family(model.Families[f]).ServiceCIDRs {
				got = append(got, p.String())
			}
			testaid.Equal(t, model.Families[f].String()+" ServiceCIDRs", want, got)
		}
	}
	// Sorted, host bits cleared, and none inside another: an interval set takes no
	// overlaps.
	check([]string{"172.29.0.0/24", "172.30.0.0/16", "172.31.7.0/24", "255.255.0.0/16"}, []string{"fd00:172:30::/112"})
	checkProblems(t, b.Snapshot(),
		`ServiceCIDR bad: spec.cidrs[0]: "172.30.0.0" is not a CIDR`,
		`ServiceCIDR bad: spec.cidrs[1]: "10.0.0.0/33" is not a CIDR`)

	b.DeleteServiceCIDR("bad")
	b.DeleteServiceCIDR("unknown")
	check([]string{"172.30.0.0/16", "172.31.7.0/24", "255.255.0.0/16"}, []string{"fd00:172:30::/112"})
	checkProblems(t, b.Snapshot())

	b.DeleteServiceCIDR("kubernetes")
	check([]string{"172.30.5.0/24", "172.31.7.0/24", "255.255.0.0/16"}, []string{})
}
