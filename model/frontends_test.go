package model_test

import (
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// Further ones are the scenario load-balancer.
func TestFrontends(t *testing.T) {
	const ends = " 10.0.0.2:8080, 10.0.0.3:8080"
	for _, tt := range []struct {
		name    string
		service modeltest.Service
		want    []string
	}{
		{
			"addresses of a family in which the Service has no cluster IP are left out",
			web().External("fd00:192:168:99::b").LoadBalancer("fd00:192:168:98::b"),
			[]string{"ns1/web:http/tcp [172.30.0.41:80 forward]" + ends},
		},
		{
			"an address given twice counts once, as what it was first",
			web().LoadBalancer("192.168.98.11", "192.168.98.11").External("192.168.98.11", "192.168.99.11", "192.168.99.11", "172.30.0.41"),
			[]string{"ns1/web:http/tcp [172.30.0.41:80 forward, 192.168.98.11:80 forward masquerade, " +
				"192.168.99.11:80 forward masquerade]" + ends},
		},
		{
			"a load balancer that is a proxy must see its own traffic",
			web().From(model.Ingress{IP: "192.168.98.11", IPMode: "Proxy"}).LoadBalancer("192.168.98.12"),
			[]string{"ns1/web:http/tcp [172.30.0.41:80 forward, 192.168.98.12:80 forward masquerade]" + ends},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := modeltest.Snapshot(modeltest.Config(), tt.service, webSlice())
			checkPorts(t, s, tt.want...)
			checkProblems(t, s)
		})
	}
}
