package model_test

import (
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// Our node is node-1 in zone-a. Pods .2 and .4 are there, .3 is on node-2 in the same
// zone, .5 on node-3 in zone-b.
func TestHints(t *testing.T) {
	type options = []func(*model.SliceEndpoint)
	nodes, zones := modeltest.ForNodes, modeltest.ForZones
	ours := modeltest.OurNode().In("zone-a")
	const all = "10.0.0.2:8080 local, 10.0.0.3:8080, 10.0.0.5:8080"
	for _, tt := range []struct {
		name string
		node modeltest.Node
		// hints and conditions of 10.0.0.2, .3 and .5
		two, three, five options
		want             string
	}{
		{"no hints: all", ours, nil, nil, nil, all},
		{"node hints", ours, options{nodes("node-1")}, options{nodes("node-2")}, options{nodes("node-3")}, "10.0.0.2:8080 local"},
		{"node hints that send us elsewhere", ours, options{nodes("node-2")}, options{nodes("node-1")}, options{nodes("node-3")}, "10.0.0.3:8080"},
		{"several node hints", ours, options{nodes("node-3")}, options{nodes("node-2", "node-1")}, options{nodes("node-1")}, "10.0.0.3:8080, 10.0.0.5:8080"},
		{"node hints for nobody here: all", ours, options{nodes("node-2")}, options{nodes("node-2")}, options{nodes("node-3")}, all},
		{"one node hint is missing: all", ours, options{nodes("node-1")}, options{nodes("node-2")}, nil, all},
		{"zone hints", ours, options{zones("zone-a")}, options{zones("zone-a")}, options{zones("zone-b")}, "10.0.0.2:8080 local, 10.0.0.3:8080"},
		{"several zone hints", ours, options{zones("zone-c", "zone-a")}, options{zones("zone-b")}, options{zones("zone-b", "zone-c")}, "10.0.0.2:8080 local"},
		{"zone hints for nobody here: all", ours, options{zones("zone-b")}, options{zones("zone-b")}, options{zones("zone-c")}, all},
		{"one zone hint is missing: all", ours, options{zones("zone-a")}, nil, options{zones("zone-b")}, all},
		{"another zone", ours.In("zone-b"), options{zones("zone-a")}, options{zones("zone-a")}, options{zones("zone-b")}, "10.0.0.5:8080"},
		{"our node has no zone: all", ours.In(""), options{zones("zone-a")}, options{zones("zone-a")}, options{zones("zone-b")}, all},
		{"no zone and an empty hint do not meet: all", ours.In(""), options{zones("")}, options{zones("zone-a")}, options{zones("zone-b")}, all},
		{
			"node hints go before zone hints", ours,
			options{nodes("node-1"), zones("zone-b")},
			options{nodes("node-2"), zones("zone-a")},
			options{nodes("node-3"), zones("zone-a")},
			"10.0.0.2:8080 local",
		},
		{
			"node hints for nobody here: zone hints count", ours,
			options{nodes("node-2"), zones("zone-a")},
			options{nodes("node-2"), zones("zone-b")},
			options{nodes("node-3"), zones("zone-b")},
			"10.0.0.2:8080 local",
		},
		{
			"one node hint is missing: zone hints count", ours,
			options{nodes("node-1"), zones("zone-b")},
			options{zones("zone-a")},
			options{nodes("node-3"), zones("zone-b")},
			"10.0.0.3:8080",
		},
		{"some have node hints, the others zone hints: all", ours, options{nodes("node-1")}, options{zones("zone-a")}, options{zones("zone-b")}, all},
		{
			"hints of endpoints that are not ready do not count", ours,
			options{unready, nodes("node-1")},
			options{nodes("node-2")},
			options{nodes("node-1")},
			"10.0.0.5:8080",
		},
		{
			"hints that are missing of endpoints that are not ready do not matter", ours,
			options{nodes("node-1")},
			options{leaving},
			options{nodes("node-3")},
			"10.0.0.2:8080 local",
		},
		{
			"only an endpoint that is leaving is hinted for us: all that are ready", ours,
			options{leaving, nodes("node-1")},
			options{nodes("node-2")},
			options{nodes("node-3")},
			"10.0.0.3:8080, 10.0.0.5:8080",
		},
		{
			"terminating endpoints are used without looking at hints", ours,
			options{leaving, zones("zone-a")},
			options{leaving, zones("zone-b")},
			options{gone, zones("zone-a")},
			"10.0.0.2:8080 local, 10.0.0.3:8080",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			slice := modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).
				Endpoint("10.0.0.2", append(tt.two, here)...).
				Endpoint("10.0.0.3", append(tt.three, there)...).
				Endpoint("10.0.0.5", append(tt.five, modeltest.OnNode("node-3"))...)
			checkPorts(t, modeltest.Snapshot(modeltest.Config(), tt.node, web(), slice), "ns1/web:http/tcp [172.30.0.41:80 forward] "+tt.want)
		})
	}
}

func TestHintsAreForTheClusterListAlone(t *testing.T) {
	slice := modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).
		Endpoint("10.0.0.2", here, modeltest.ForZones("zone-b")).
		Endpoint("10.0.0.4", here, modeltest.ForZones("zone-a")).
		Endpoint("10.0.0.5", there, modeltest.ForZones("zone-a"))
	node := modeltest.OurNode().In("zone-a")
	s := modeltest.Snapshot(modeltest.Config(), node, allKinds().Policies("Cluster", "Local"), slice)
	checkPorts(t, s, "ns1/web:http/tcp [172.30.0.41:80 forward, 192.168.98.11:80 forward local masquerade-node short-circuit, "+
		"192.168.99.11:80 forward local masquerade-node short-circuit, :30001 forward local masquerade-node short-circuit] "+
		"10.0.0.2:8080 local in the local list, 10.0.0.4:8080 local in both lists, 10.0.0.5:8080")

	t.Run("for every kind of frontend", func(t *testing.T) {
		checkPorts(t, modeltest.Snapshot(modeltest.Config(), node, allKinds(), slice),
			"ns1/web:http/tcp [172.30.0.41:80 forward, 192.168.98.11:80 forward masquerade, 192.168.99.11:80 forward masquerade, "+
				":30001 forward masquerade] 10.0.0.4:8080 local, 10.0.0.5:8080")
	})
	t.Run("with both policies Local they have no say", func(t *testing.T) {
		checkPorts(t, modeltest.Snapshot(modeltest.Config(), node, web().Policies("Local", ""), slice),
			"ns1/web:http/tcp [172.30.0.41:80 forward local] 10.0.0.2:8080 local in the local list, 10.0.0.4:8080 local in the local list")
	})
	t.Run("hints that leave out all that is local drop nothing", func(t *testing.T) {
		b := modeltest.Builder(modeltest.Config(), node.In("zone-c"), web().Policies("Local", ""), slice.
			Endpoint("10.0.0.3", there, modeltest.ForZones("zone-c")))
		checkPorts(t, b.Snapshot(), "ns1/web:http/tcp [172.30.0.41:80 forward local] 10.0.0.2:8080 local in the local list, 10.0.0.4:8080 local in the local list")
	})
}

func TestHintsOfSeveralSlices(t *testing.T) {
	slice := func(n string) modeltest.Slice { return modeltest.NewSlice("ns1/web-"+n, "web").TCP("http", 8080) }
	one := slice("1").Endpoint("10.0.0.2", here, modeltest.ForZones("zone-a")).Endpoint("10.0.0.3", there, modeltest.ForZones("zone-b"))
	two := slice("2").Endpoint("10.0.0.5", there, modeltest.ForZones("zone-a"))
	node := modeltest.OurNode().In("zone-a")
	check := func(t *testing.T, want string, objects ...modeltest.Object) {
		t.Helper()
		s := modeltest.Snapshot(modeltest.Config(), append(objects, node, web())...)
		checkPorts(t, s, "ns1/web:http/tcp [172.30.0.41:80 forward] "+want)
	}
	t.Run("all together decide", func(t *testing.T) {
		check(t, "10.0.0.2:8080 local, 10.0.0.5:8080", one, two)
		check(t, "10.0.0.2:8080 local, 10.0.0.3:8080, 10.0.0.5:8080, 10.0.0.6:8080", one, two.Ready("10.0.0.6"))
	})
	t.Run("of two copies of an endpoint, what any says holds", func(t *testing.T) {
		check(t, "10.0.0.2:8080 local, 10.0.0.3:8080", one, slice("2").Endpoint("10.0.0.3", modeltest.ForZones("zone-a")))
		check(t, "10.0.0.2:8080 local", one, slice("2").Ready("10.0.0.3"))
		check(t, "10.0.0.2:8080 local", slice("2").Ready("10.0.0.3"), one)
	})
	t.Run("with a number of their own they are other endpoints", func(t *testing.T) {
		other := modeltest.NewSlice("ns1/web-2", "web").TCP("http", 9090)
		check(t, "10.0.0.2:8080 local", one, other.Endpoint("10.0.0.3", there, modeltest.ForZones("zone-b")))
		check(t, "10.0.0.2:8080 local, 10.0.0.3:9090", one, other.Endpoint("10.0.0.3", there, modeltest.ForZones("zone-a")))
		check(t, "10.0.0.2:8080 local, 10.0.0.3:8080, 10.0.0.3:9090", one, other.Ready("10.0.0.3"))
	})
	t.Run("a slice that does not have the port has no say", func(t *testing.T) {
		check(t, "10.0.0.2:8080 local", one, modeltest.NewSlice("ns1/web-2", "web").TCP("https", 8443).Ready("10.0.0.9"))
	})
	t.Run("each family decides for itself", func(t *testing.T) {
		six := modeltest.NewSlice("ns1/web-6", "web").IPv6().TCP("http", 8080).Ready("fd00:10::2")
		checkPorts(t, modeltest.Snapshot(modeltest.Config(), node, web().On("172.30.0.41", "fd00:172:30::29"), one, six),
			"ns1/web:http/tcp [172.30.0.41:80 forward] 10.0.0.2:8080 local",
			"ns1/web:http/tcp [[fd00:172:30::29]:80 forward] [fd00:10::2]:8080")
	})
}

func TestHintsFollowTheZoneOfTheNode(t *testing.T) {
	slice := modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).
		Endpoint("10.0.0.2", here, modeltest.ForZones("zone-a")).Endpoint("10.0.0.3", there, modeltest.ForZones("zone-b"))
	other := modeltest.NewService("ns1/other").On("172.30.0.42").TCP("", 80)
	b := modeltest.Builder(modeltest.Config(), web(), slice, other)
	const (
		inA   = "10.0.0.2:8080 local"
		inB   = "10.0.0.3:8080"
		noOne = "10.0.0.2:8080 local, 10.0.0.3:8080"
	)
	untouched := pointers(b.Snapshot())[model.IPv4][modeltest.PortName("ns1/other", "", model.TCP)]
	for _, step := range []struct {
		name   string
		change func()
		want   string
	}{
		{"no Node object", func() {}, noOne},
		{"a Node without a zone", func() { modeltest.OurNode().Set(b) }, noOne},
		{"zone-a", func() { modeltest.OurNode().In("zone-a").Set(b) }, inA},
		{"zone-b", func() { modeltest.OurNode().In("zone-b").Set(b) }, inB},
		{"another Node's zone", func() { modeltest.NewNode("node-2").In("zone-a").Set(b) }, inB},
		{"a Service that comes later", func() { web().Delete(b); b.Snapshot(); web().Set(b) }, inB},
		{"the label is removed", func() { modeltest.OurNode().Set(b) }, noOne},
		{"zone-b again", func() { modeltest.OurNode().In("zone-b").Set(b) }, inB},
		{"the Node is deleted", func() { modeltest.OurNode().Delete(b) }, inB},
	} {
		step.change()
		got := modeltest.PortTexts(b.Snapshot().Family(model.IPv4))
		equal(t, step.name, []string{"ns1/other/tcp [172.30.0.42:80 reject]", "ns1/web:http/tcp [172.30.0.41:80 forward] " + step.want}, got)
		if pointers(b.Snapshot())[model.IPv4][modeltest.PortName("ns1/other", "", model.TCP)] != untouched {
			t.Errorf("%s: a service port that does not depend on the zone was made anew", step.name)
		}
	}
}
