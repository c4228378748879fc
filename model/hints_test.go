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
		{"no zone and an empty hint do not meet: all", ours.In(""), options{zones("")}, options{zones("zone-a")}, options{zones("zone-b")}, all},
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
