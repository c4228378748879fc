package model_test

import (
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// Options for endpoints. 10.0.0.2 and .4 are on our node, .3 and .5 are not.
var (
	here  = modeltest.OnNode(modeltest.NodeName)
	there = modeltest.OnNode("node-2")

	leaving = modeltest.Conditions(false, true, true)   // terminating, but still serving
	gone    = modeltest.Conditions(false, false, true)  // terminating, not serving any more
	unready = modeltest.Conditions(false, false, false) // not there yet
)

// allKinds is a Service with a frontend of each kind.
func allKinds() modeltest.Service {
	return web().LoadBalancer("192.168.98.11").External("192.168.99.11").NodePort(30001)
}

// The two lists fall back to terminating endpoints independently (KEP-1669).
func TestListsFallBackIndependently(t *testing.T) {
	type endpoint struct {
		addr    string
		options []func(*model.SliceEndpoint)
	}
	at := func(addr string, options ...func(*model.SliceEndpoint)) endpoint { return endpoint{addr, options} }
	const (
		forward = "[172.30.0.41:80 forward local, 192.168.99.11:80 forward local masquerade-node short-circuit]"
		drop    = "[172.30.0.41:80 drop local, 192.168.99.11:80 drop local masquerade-node short-circuit]"
		reject  = "[172.30.0.41:80 reject local, 192.168.99.11:80 reject local masquerade-node]"
	)
	for _, tt := range []struct {
		name      string
		endpoints []endpoint
		want      string
	}{
		{
			"leaving here, ready there: only the local list falls back",
			[]endpoint{at("10.0.0.2", here, leaving), at("10.0.0.3", there)},
			forward + " 10.0.0.2:8080 local in the local list, 10.0.0.3:8080",
		},
		{
			"ready here, leaving there: neither falls back",
			[]endpoint{at("10.0.0.2", here), at("10.0.0.3", there, leaving)},
			forward + " 10.0.0.2:8080 local in both lists",
		},
		{"leaving there", []endpoint{at("10.0.0.3", there, leaving)}, drop + " 10.0.0.3:8080"},
		{"ready there, not yet here", []endpoint{at("10.0.0.2", here, unready), at("10.0.0.3", there)}, drop + " 10.0.0.3:8080"},
		{"none that serves", []endpoint{at("10.0.0.2", here, gone), at("10.0.0.3", there, unready)}, reject},
		{
			// The controller publishes them so for publishNotReadyAddresses.
			"ready while leaving is ready",
			[]endpoint{at("10.0.0.2", here, modeltest.Conditions(true, false, true)), at("10.0.0.4", here, leaving)},
			forward + " 10.0.0.2:8080 local in both lists",
		},
		{"no node is not our node", []endpoint{at("10.0.0.3")}, drop + " 10.0.0.3:8080"},
		{
			"ready there, and an older pod with its address is leaving here: it is there",
			[]endpoint{at("10.0.0.2", there), at("10.0.0.2", here, leaving)},
			drop + " 10.0.0.2:8080",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			slice := modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080)
			for _, e := range tt.endpoints {
				slice = slice.Endpoint(e.addr, e.options...)
			}
			s := modeltest.Snapshot(modeltest.Config(), web().External("192.168.99.11").Policies("Local", "Local"), slice)
			checkPorts(t, s, "ns1/web:http/tcp "+tt.want)
		})
	}
}
