package model_test

import (
	"net/netip"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// A Node object that is deleted, or that registers again without all of its fields, changes
// nothing about traffic: the machine is the same.
func TestTheLastKnownNodeStaysInUse(t *testing.T) {
	type facts struct {
		NodePorts, Pods []string
		Hinted          string // the endpoint that the zone's hints choose
		State           model.NodeState
	}
	config := modeltest.Config()
	config.LocalPods.Mode = model.ByNodeCIDR
	slice := modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).
		Endpoint("10.0.0.2", modeltest.ForZones("zone-a")).Endpoint("10.0.0.3", modeltest.ForZones("zone-b"))
	b := modeltest.Builder(config, web(), slice)
	b.SetHostAddresses(hostAddrs("10.7.0.1", "192.168.0.2")) // another interface comes first
	node := func(addrs ...string) modeltest.Node { return modeltest.NewNode("node-1", addrs...) }
	got := func() facts {
		s := b.Snapshot()
		f := facts{NodePorts: sorted(s.Family(model.IPv4).NodePortAddrs), State: s.Node}
		for _, p := range s.Family(model.IPv4).Pods.CIDRs {
			f.Pods = append(f.Pods, p.String())
		}
		sp := pointers(s)[model.IPv4][modeltest.PortName("ns1/web", "http", model.TCP)]
		for e := range sp.In(model.Cluster) {
			f.Hinted += e.Addr.Addr().String() + " "
		}
		return f
	}
	eligible, no := model.NodeState{Known: true, Eligible: true}, model.NodeState{Known: true, Why: "has no address"}
	full := facts{[]string{"192.168.0.2"}, []string{"10.0.0.0/24"}, "10.0.0.2 ", eligible}
	with := func(f facts, s model.NodeState) facts { f.State = s; return f }
	unlabelled := full // which ignores hints
	unlabelled.Hinted = "10.0.0.2 10.0.0.3 "
	const (
		gone    = "Node node-1: metadata.name: no Node has it any more: the last known addresses, pod ranges and zone stay in use"
		noAddrs = "Node node-1: status.addresses: is empty: the last known ones stay in use: [192.168.0.2]"
		noPods  = "Node node-1: spec.podCIDRs: is empty: the last known ones stay in use: [10.0.0.0/24]"
	)
	for _, step := range []struct {
		name     string
		change   func()
		want     facts
		problems []string
	}{
		{"registered", func() { node("192.168.0.2").Pods("10.0.0.0/24").In("zone-a").Set(b) }, full, nil},
		{"deleted", func() { b.DeleteNode("node-1") }, with(full, model.NodeState{}), []string{gone}},
		{"registers again, with nothing", func() { node().Set(b) }, with(unlabelled, no), []string{noPods, noAddrs}},
		{"an address that can't be read is none", func() { node("nowhere").Set(b) }, with(unlabelled, no), []string{
			noPods, noAddrs, `Node node-1: status.addresses[0].address: "nowhere" is not an IP address`,
		}},
		{"its addresses", func() { node("192.168.0.2").Set(b) }, unlabelled, []string{noPods}},
		{
			"its pod ranges", func() { node("192.168.0.2").Pods("10.0.1.0/24").Set(b) },
			facts{full.NodePorts, []string{"10.0.1.0/24"}, unlabelled.Hinted, eligible},
			nil,
		},
		{
			"its zone", func() { node("192.168.0.2").Pods("10.0.1.0/24").In("zone-b").Set(b) },
			facts{full.NodePorts, []string{"10.0.1.0/24"}, "10.0.0.3 ", eligible},
			nil,
		},
		{
			"the label is removed from the same Node", func() { node("192.168.0.2").Pods("10.0.1.0/24").Set(b) },
			facts{full.NodePorts, []string{"10.0.1.0/24"}, "10.0.0.2 10.0.0.3 ", eligible},
			nil,
		},
		{
			"another address", func() { node("10.7.0.1").Pods("10.0.1.0/24").Set(b) },
			facts{[]string{"10.7.0.1"}, []string{"10.0.1.0/24"}, "10.0.0.2 10.0.0.3 ", eligible},
			nil,
		},
		{
			"replaced without a deletion in between", func() { node().Set(b) },
			facts{[]string{"10.7.0.1"}, []string{"10.0.1.0/24"}, "10.0.0.2 10.0.0.3 ", no},
			[]string{
				"Node node-1: spec.podCIDRs: is empty: the last known ones stay in use: [10.0.1.0/24]",
				"Node node-1: status.addresses: is empty: the last known ones stay in use: [10.7.0.1]",
			},
		},
	} {
		step.change()
		testaid.Equal(t, step.name, step.want, got())
		checkProblems(t, b.Snapshot(), step.problems...)
	}

	t.Run("a process that starts now knows only the interfaces", func(t *testing.T) {
		b := modeltest.Builder(config, node())
		b.SetHostAddresses([]netip.Addr{netip.MustParseAddr("10.7.0.1"), netip.MustParseAddr("192.168.0.2")})
		testaid.Equal(t, "node port addresses", []string{"10.7.0.1"}, sorted(b.Snapshot().Family(model.IPv4).NodePortAddrs))
		testaid.Equal(t, "node", eligible, b.Snapshot().Node)
	})
}
