package ipvs_test

import (
	"testing"

	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/legacy/ipvs/ipvssim"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// bigSlice has endpoints of a big Service, the first as many as local on this node.
func bigSlice(pods, local int) modeltest.Slice {
	s := modeltest.NewSlice("ns1/big-1", "big").TCP("http", 8080)
	for n := range pods {
		e := model.SliceEndpoint{Addresses: []string{modeltest.Pod(model.IPv4, 1_000_000+n).String()}, NodeName: "node-2"}
		if n < local {
			e.NodeName = modeltest.NodeName
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

// One endpoint changes among 1,000 of a Service, among others.
func TestOneEndpointIsOneOperationForEachFrontend(t *testing.T) {
	const services, pods = 100, 1000
	plain := modeltest.NewService("ns1/big").On("172.31.200.1").TCP("http", 80)
	external := plain.NodePort(30001).LoadBalancer("192.168.98.11")
	for _, tt := range []struct {
		name                  string
		service               modeltest.Service
		pods, local, newLocal int
		want                  int
	}{
		{"nothing changes", plain, pods, 0, 0, 0},
		{"one more: a real server", plain, pods + 1, 0, 0, 1},
		{"one less: drains", plain, pods - 1, 0, 0, 1},
		{"one more, with a node port and a load balancer: three", external, pods + 1, 0, 0, 3},
		{"an endpoint comes to this node: its hairpin", plain, pods, 1, 2, 1},
		{
			"policy Local, one more elsewhere: for the cluster IP, and its hairpin",
			external.Policies("", "Local"), pods + 1, 1, 1, 2,
		},
		{
			"policy Local, one more on this node: at its node port and load balancer address besides",
			external.Policies("", "Local"), pods, 1, 2, 2,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := modeltest.Builder(modeltest.Config(), tt.service, bigSlice(pods, tt.local), modeltest.OurNode())
			modeltest.Feed(b, modeltest.Cluster(services, 1))
			before := ipvs.Compile(nil, b.Snapshot().Family(model.IPv4), ipvs.Options{})
			bigSlice(tt.pods, max(tt.local, tt.newLocal)).Set(b)
			after := ipvs.Compile(nil, b.Snapshot().Family(model.IPv4), ipvs.Options{})
			plan := ipvs.Diff(before, after)
			if len(plan) != tt.want {
				t.Errorf("want %d operations, got\n%.2000s", tt.want, ipvssim.Text(plan))
			}
		})
	}
}
