package devices

import (
	"testing"

	"github.com/google/go-cmp/cmp"
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
	links := []link{
		{name: "lo", kind: "device"},
		{name: "eth1", kind: "device", ethernet: true, master: "bond"},
		{name: "bond0", kind: "bond", ethernet: true},
		{name: "eth0", kind: "device", ethernet: true},
		{name: "cni0", kind: "bridge", ethernet: true},
		{name: "veth12", kind: "veth", ethernet: true, master: "bridge"},
		{name: "cali34", kind: "veth", ethernet: true},
		{name: "flannel.1", kind: "vxlan", ethernet: true},
		{name: "tunl0", kind: "ipip"},
		{name: "wg0", kind: "wireguard"},
		{name: "kube-ipvs0", kind: "dummy", ethernet: true},
		{name: "ifb0", kind: "ifb", ethernet: true},
	}
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
		for _, l := range c.of(links) {
			got = append(got, l.name)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}
