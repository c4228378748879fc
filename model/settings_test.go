package model_test

import (
	"net/netip"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

func TestNodePortAddresses(t *testing.T) {
	// Two addresses of each family, one of them not in the Node object.
	host := []netip.Addr{
		netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("192.168.0.2"), netip.MustParseAddr("fd00:10::1"),
	}
	node := modeltest.NewNode("node-1", "192.168.0.2", "192.168.1.2", "fd00:192:168::2")
	for _, tt := range []struct {
		name    string
		flag    []string
		node    bool
		host    []netip.Addr
		want    []string
		wantErr bool
	}{
		{"primary: the Node object's first of each family", []string{"primary"}, true, host, []string{"192.168.0.2", "fd00:192:168::2"}, false},
		{"nothing said means primary", nil, true, host, []string{"192.168.0.2", "fd00:192:168::2"}, false},
		{"without a Node object, the interfaces' first", nil, false, host, []string{"10.0.0.1", "fd00:10::1"}, false},
		{"without either, none", nil, false, nil, []string{}, false},
		{
			"all: what the interfaces have, not what only the Node object has",
			[]string{"all"},
			true, host,
			[]string{"10.0.0.1", "192.168.0.2", "fd00:10::1"},
			false,
		},
		{"all without a Node object", []string{"all"}, false, host, []string{"10.0.0.1", "192.168.0.2", "fd00:10::1"}, false},
		{
			"all, in a dry run that knows no interfaces",
			[]string{"all"},
			true, nil,
			[]string{"192.168.0.2", "192.168.1.2", "fd00:192:168::2"},
			false,
		},
		{"a CIDR: the interfaces' addresses in it", []string{"192.168.0.0/16", "fd00:192::/32"}, true, host, []string{"192.168.0.2"}, false},
		{"CIDRs of one family say nothing about the other: all", []string{"10.0.0.0/8"}, true, host, []string{"10.0.0.1", "fd00:10::1"}, false},
		{"… unless the primary address is named", []string{"10.0.0.0/8", "primary"}, true, host, []string{"10.0.0.1", "192.168.0.2", "fd00:192:168::2"}, false},
		{"a CIDR in which the node has no address", []string{"203.0.113.0/24", "2001:db8::/32"}, true, host, []string{}, false},
		{"several CIDRs", []string{"10.0.0.0/8", "fd00:10::/64"}, true, host, []string{"10.0.0.1", "fd00:10::1"}, false},
		{"primary and a CIDR", []string{"primary", "10.0.0.0/8"}, true, host, []string{"10.0.0.1", "192.168.0.2", "fd00:192:168::2"}, false},
		{"an IPv4-mapped CIDR", []string{"::ffff:10.0.0.0/104"}, true, host, []string{"10.0.0.1", "fd00:10::1"}, false},
		{"what is bad is reported, the rest counts", []string{"secondary", "10.0.0.0/8", "10.0.0.0/33"}, true, host, []string{"10.0.0.1", "fd00:10::1"}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			flag, err := model.ParseNodePortAddresses(tt.flag)
			equal(t, "is there an error?", tt.wantErr, err != nil)
			b := model.NewBuilder(model.Config{NodeName: "node-1", NodePortAddresses: flag})
			if tt.node {
				node.Set(b)
			}
			b.SetHostAddresses(tt.host)
			got := []string{}
			for _, f := range model.Families {
				for _, a := range b.Snapshot().Family(f).NodePortAddrs {
					got = append(got, a.String())
				}
			}
			equal(t, "addresses", tt.want, got)
		})
	}

	t.Run("an address that appears later is taken up", func(t *testing.T) {
		b := model.NewBuilder(model.Config{NodeName: "node-1", NodePortAddresses: model.NodePortAddresses{All: true}})
		b.SetHostAddresses(host[:1])
		before := b.Snapshot()
		b.SetHostAddresses(host[:2])
		after := b.Snapshot()
		equal(t, "addresses before", host[:1], before.Family(model.IPv4).NodePortAddrs, compareAddrs...)
		equal(t, "addresses after", host[:2], after.Family(model.IPv4).NodePortAddrs, compareAddrs...)
		if before.Family(model.IPv6).Settings != after.Family(model.IPv6).Settings {
			t.Error("the settings of IPv6 were made anew, though nothing changed there")
		}
	})

	t.Run("the zero value means none", func(t *testing.T) {
		s := modeltest.Snapshot(model.Config{NodeName: "node-1"}, node)
		equal(t, "addresses", 0, len(s.Family(model.IPv4).NodePortAddrs))
	})
}

func TestNodePortsOnLocalhost(t *testing.T) {
	for _, tt := range []struct {
		name string
		flag []string
		want [2]bool // IPv4, IPv6
		// where else
		addrs []string
	}{
		{"nothing said", nil, [2]bool{}, []string{"192.168.0.2", "fd00:192:168::2"}},
		{"the word: both families, and nowhere else", []string{"localhost"}, [2]bool{true, true}, nil},
		{"beside the primary addresses", []string{"primary", "localhost"}, [2]bool{true, true}, []string{"192.168.0.2", "fd00:192:168::2"}},
		{"a range of IPv4", []string{"127.0.0.0/8", "primary"}, [2]bool{true, false}, []string{"192.168.0.2", "fd00:192:168::2"}},
		{"a single address", []string{"127.0.0.1/32"}, [2]bool{true, false}, nil},
		{"IPv6", []string{"::1/128"}, [2]bool{false, true}, nil},
		{"IPv4-mapped", []string{"::ffff:127.0.0.0/104"}, [2]bool{true, false}, nil},
		{"all does not mean it", []string{"all"}, [2]bool{}, []string{"192.168.0.2", "fd00:192:168::2"}},
		{"nor does a range of everything", []string{"0.0.0.0/0", "::/0"}, [2]bool{}, []string{"192.168.0.2", "fd00:192:168::2"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			flag, err := model.ParseNodePortAddresses(tt.flag)
			equal(t, "error", nil, err)
			s := modeltest.Snapshot(model.Config{NodeName: "node-1", NodePortAddresses: flag}, modeltest.OurNode())
			var got []string
			for _, f := range model.Families {
				equal(t, f.String(), tt.want[f], s.Family(f).Localhost)
				for _, a := range s.Family(f).NodePortAddrs {
					got = append(got, a.String())
				}
			}
			equal(t, "addresses", tt.addrs, got)
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
			equal(t, model.Families[f].String()+" ServiceCIDRs", want, got)
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

func TestConfigReachesBothFamilies(t *testing.T) {
	s := modeltest.Snapshot(model.Config{MasqueradeAll: true, LocalPods: model.LocalPods{ClusterCIDRs: []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00:10::/64"), netip.MustParsePrefix("10.1.0.0/16"),
	}}})
	for f, want := range []string{"10.0.0.0/8", "fd00:10::/64"} {
		fs := s.Family(model.Families[f])
		equal(t, "masquerade all", true, fs.MasqueradeAll)
		equal(t, "cluster CIDRs", []netip.Prefix{netip.MustParsePrefix(want)}, fs.Pods.CIDRs, compareAddrs...)
	}
}
