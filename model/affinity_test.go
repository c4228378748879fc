package model_test

import (
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// One connection after the other: the endpoints that each may get, and the one that it gets.
func TestMemoryDecides(t *testing.T) {
	both := modeltest.NewService("ns1/both").Typed("LoadBalancer").On("172.30.0.41").LoadBalancer("192.168.98.41").
		Policies("Cluster", "Local").Sticky(60).TCP("http", 80).NodePort(30001)
	// Its external address and port are a node port of the other, and it shares an endpoint with it.
	neighbour := modeltest.NewService("ns1/neighbour").On("172.30.0.42").External(modeltest.NodeIP4).TCP("http", 30001)
	s := modeltest.Snapshot(modeltest.Config(), modeltest.OurNode(), both, neighbour,
		modeltest.NewSlice("ns1/both-1", "both").TCP("http", 8080).Local("10.0.0.2").Ready("10.0.0.3").Local("10.0.0.4"),
		modeltest.NewSlice("ns1/neighbour-1", "neighbour").TCP("http", 8080).Ready("10.0.0.3").Local("10.0.0.9"),
	)
	const (
		all      = "10.0.0.2 10.0.0.3 10.0.0.4"
		here     = "10.0.0.2 10.0.0.4"
		cluster  = "172.30.0.41:80"
		external = "192.168.98.41:80"
		client   = "203.0.113.9"
	)
	type step struct{ from, to, want, got string }
	for _, tt := range []struct {
		name  string
		steps []step
	}{
		{"a client comes back", []step{{client, cluster, all, "10.0.0.3"}, {client, cluster, "10.0.0.3", "10.0.0.3"}}},
		{"another client does not", []step{{client, cluster, all, "10.0.0.3"}, {"203.0.113.7", cluster, all, "10.0.0.2"}}},
		{"by another frontend with the same policy", []step{{client, external, here, "10.0.0.4"}, {client, "192.168.98.41:80", "10.0.0.4", "10.0.0.4"}}},
		{"an endpoint of both policies is remembered for both", []step{{client, external, here, "10.0.0.4"}, {client, cluster, "10.0.0.4", "10.0.0.4"}}},
		{"an endpoint of one policy is of no use for the other", []step{{client, cluster, all, "10.0.0.3"}, {client, external, here, "10.0.0.2"}, {client, cluster, "10.0.0.3", "10.0.0.3"}, {client, external, "10.0.0.2", "10.0.0.2"}}},
		{"a neighbour without affinity teaches nothing", []step{
			{client, "192.168.0.2:30001", "10.0.0.3 10.0.0.9", "10.0.0.3"},
			{client, cluster, all, "10.0.0.2"},
			{client, "192.168.0.2:30001", "10.0.0.3 10.0.0.9", "10.0.0.9"},
			{client, cluster, "10.0.0.2", "10.0.0.2"},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var m modeltest.Memory
			for _, step := range tt.steps {
				d := m.Decide(s, tcp(step.from, step.to))
				may, chosen := "", model.Target{}
				for i, target := range d.Targets {
					may += [...]string{"", " "}[min(i, 1)] + target.Addr.Addr().String()
					if target.Addr.Addr().String() == step.got {
						chosen = target
					}
				}
				equal(t, step.from+" to "+step.to, step.want, may)
				m = m.After(d, chosen)
			}
		})
	}
}

// A Memory is a value: connections of two futures do not meet.
func TestAMemoryDoesNotChange(t *testing.T) {
	s := modeltest.Snapshot(modeltest.Config(), modeltest.OurNode(), allKinds().Sticky(60), webSlice())
	c := tcp("203.0.113.9", "172.30.0.41:80")
	var empty modeltest.Memory
	d := empty.Decide(s, c)
	equal(t, "endpoints", 2, len(d.Targets))
	first, second := empty.After(d, d.Targets[0]), empty.After(d, d.Targets[1])
	for _, tt := range []struct {
		name string
		m    modeltest.Memory
		want []model.Target
	}{{"empty", empty, d.Targets}, {"first", first, d.Targets[:1]}, {"second", second, d.Targets[1:]}} {
		equal(t, tt.name, tt.want, tt.m.Decide(s, c).Targets, compareEndpoints)
	}
}
