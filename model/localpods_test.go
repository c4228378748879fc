package model_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

func TestNamesOfInterfacesAreChecked(t *testing.T) {
	const long, odd = "longer than the 15 bytes", "not the name of an interface"
	for _, tt := range []struct {
		name   string
		prefix bool
		want   string // a part of the error; "" if the name is good
	}{
		{"", false, ""},
		{"cbr0", false, ""},
		{"cali", true, ""},
		{"abcdefghijklmno", true, ""},
		{"abcdefghijklmnop", true, long},
		{"cali+", false, odd},
		{"cali+", true, ""},
		{"x -j ACCEPT", false, odd},
		{"x\n-P", true, odd},
		{`x"`, false, odd},
		{"x'", false, odd},
		{`x\`, true, odd},
		{"!x", false, odd},
		{"a/b", false, odd},
		{"a:b", false, odd},
		{"cali*", true, odd},
		{"caf\u00e9", false, odd},
	} {
		err := model.CheckInterface(tt.name, tt.prefix)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: want an error with %q, got %v", tt.name, tt.want, err)
		}
	}
}

func TestPodCIDRsOfTheNode(t *testing.T) {
	config := modeltest.Config()
	config.LocalPods.Mode = model.ByNodeCIDR
	b := modeltest.Builder(config, web(), webSlice())
	sp := pointers(b.Snapshot())[model.IPv4][modeltest.PortName("ns1/web", "http", model.TCP)]
	const missing = "Node node-1: spec.podCIDRs: is empty: until it is set, pods can't be distinguished from other clients"
	const gone = "Node node-1: metadata.name: no Node has it any more: the last known addresses, pod ranges and zone stay in use"
	for _, step := range []struct {
		name     string
		change   func()
		want     []netip.Prefix
		problems []string
	}{
		{"without a Node", func() {}, nil, nil},
		{"not set yet", func() { modeltest.OurNode().Set(b) }, nil, []string{missing}},
		{"set", func() { modeltest.OurNode().Pods("10.0.0.0/24").Set(b) }, prefixes("10.0.0.0/24"), nil},
		{"another Node's", func() { modeltest.NewNode("node-2").Pods("10.0.1.0/24").Set(b) }, prefixes("10.0.0.0/24"), nil},
		{"several, host bits cleared, none inside another", func() {
			modeltest.OurNode().Pods("10.2.0.0/24", "10.0.0.0/16", "10.0.9.7/24", "fd00:10::/64").Set(b)
		}, prefixes("10.0.0.0/16", "10.2.0.0/24"), nil},
		{
			"one that can't be read",
			func() { modeltest.OurNode().Pods("10.0.0.0/33", "10.0.0.0/24").Set(b) },
			prefixes("10.0.0.0/24"),
			[]string{`Node node-1: spec.podCIDRs[0]: "10.0.0.0/33" is not a CIDR`},
		},
		{"deleted", func() { b.DeleteNode("node-1") }, prefixes("10.0.0.0/24"), []string{gone}},
	} {
		step.change()
		s := b.Snapshot()
		testaid.Equal(t, step.name, step.want, s.Family(model.IPv4).Pods.CIDRs, compareAddrs...)
		checkProblems(t, s, step.problems...)
		if pointers(s)[model.IPv4][sp.Name] != sp {
			t.Errorf("%s: a service port was made anew, which does not depend on it", step.name)
		}
	}

	t.Run("in other modes nobody asks for them", func(t *testing.T) {
		checkProblems(t, modeltest.Snapshot(modeltest.Config(), modeltest.OurNode()))
	})
}
