package devices

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]Choice{
		"": {}, "off": {}, "auto": {Auto: true},
		"eth0":        {Patterns: []string{"eth0"}},
		"eth0, cali*": {Patterns: []string{"eth0", "cali*"}},
	} {
		got, err := Parse(text)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%q: %v (-want +got):\n%s", text, err, diff)
		}
		if got.On() != (text != "" && text != "off") {
			t.Errorf("%q: on is %v", text, got.On())
		}
	}
	for _, text := range []string{"*", "eth0,", "a*b", "eth0/1", "sixteen-letters-x", "eth0,auto", "off,eth0", "."} {
		if got, err := Parse(text); err == nil {
			t.Errorf("%q: got %+v, want an error", text, got)
		}
	}
}

func TestChosenDevices(t *testing.T) {
	var links []netlink.Link
	add := func(name, kind, encapsulation string, master netlink.LinkSlave) {
		a := netlink.LinkAttrs{Name: name, EncapType: encapsulation, Slave: master}
		links = append(links, &netlink.GenericLink{LinkAttrs: a, LinkType: kind})
	}
	add("lo", "device", "loopback", nil)
	add("eth1", "device", "ether", &netlink.BondSlave{})
	add("bond0", "bond", "ether", nil)
	add("eth0", "device", "ether", nil)
	add("cni0", "bridge", "ether", nil)
	add("veth12", "veth", "ether", &netlink.VrfSlave{})
	add("cali34", "veth", "ether", nil)
	add("flannel.1", "vxlan", "ether", nil)
	add("tunl0", "ipip", "ipip", nil)
	add("wg0", "wireguard", "none", nil)
	add("kube-ipvs0", "dummy", "ether", nil)
	add("ifb0", "ifb", "ether", nil)
	for text, want := range map[string][]string{
		"off":            nil,
		"auto":           {"bond0", "cali34", "cni0", "eth0", "flannel.1", "veth12"},
		"eth0,cali*,wg0": {"cali34", "eth0", "wg0"},
		"eth":            nil,
	} {
		c, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, d := range c.of(links) {
			got = append(got, d.name)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}
