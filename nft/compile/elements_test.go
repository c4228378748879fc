package compile_test

import (
	"slices"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/nft/compile"
)

// What each policy of a Service becomes: the elements of its one port, without their comments.
func TestElements(t *testing.T) {
	web := modeltest.NewService("ns1/web").On("172.30.0.41").TCP("http", 80)
	none := modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080)
	one, two := none.Ready("10.0.0.2"), none.Ready("10.0.0.2").Local("10.0.0.3")
	balanced, external := web.Typed("LoadBalancer").LoadBalancer("192.168.98.11"), web.External("192.168.99.11")
	const (
		toClusterIP = "service-ips 172.30.0.41 . tcp . 80 : goto endpoints-0-to-2"
		slot0       = "endpoints 172.30.0.41 . tcp . 80 . 0 : 10.0.0.2 . 8080"
		slot1       = "endpoints 172.30.0.41 . tcp . 80 . 1 : 10.0.0.3 . 8080"
	)
	for _, tt := range []struct {
		name    string
		service modeltest.Service
		slice   modeltest.Slice
		want    []string
	}{
		{"a cluster IP", web, two, []string{toClusterIP, slot0, slot1}},
		{"no endpoint", web, none, []string{toClusterIP}},
		{"Maglev, one endpoint", web.Algorithm("maglev"), one, []string{toClusterIP, slot0}},
		{"a node port", web.NodePort(30001), one, []string{
			toClusterIP, slot0,
			"service-nodeports tcp . 30001 : goto nodeport-endpoints-0-to-2",
			"nodeport-endpoints tcp . 30001 . 0 : 10.0.0.2 . 8080",
			"nodeport-source-nat tcp . 30001 : goto masquerade-all",
		}},
		{"external Local", external.Policies("Cluster", "Local"), two, []string{
			toClusterIP, slot0, slot1,
			"service-ips 192.168.99.11 . tcp . 80 : goto local-1-to-2-of-0-to-2",
			"endpoints 192.168.99.11 . tcp . 80 . 0 : 10.0.0.2 . 8080",
			"endpoints 192.168.99.11 . tcp . 80 . 1 : 10.0.0.3 . 8080",
			"local-endpoints 192.168.99.11 . tcp . 80 . 0 : 10.0.0.3 . 8080",
			"source-nat 192.168.99.11 . tcp . 80 : goto masquerade-node",
		}},
		{"internal Local, no endpoint here", web.Policies("Local", "Cluster"), one, []string{
			"service-ips 172.30.0.41 . tcp . 80 : drop",
		}},
		{"source ranges", balanced.Ranges("203.0.113.0/24"), one, []string{
			toClusterIP, slot0,
			"firewall-ips 192.168.98.11 . tcp . 80", "source-ranges-tcp 192.168.98.11 . 80 . 203.0.113.0/24",
			"service-ips 192.168.98.11 . tcp . 80 : goto endpoints-0-to-2",
			"endpoints 192.168.98.11 . tcp . 80 . 0 : 10.0.0.2 . 8080",
			"source-nat 192.168.98.11 . tcp . 80 : goto masquerade-all",
		}},
		{"affinity", web.Sticky(60), two, []string{
			toClusterIP, slot0, slot1,
			"affinity-ips 172.30.0.41 . tcp . 80 : jump affinity-ns1/web/tcp/http",
			"remember-ips 172.30.0.41 . tcp . 80 : goto remember-ns1/web/tcp/http",
			"affinity-endpoints 1701734803 . 3322671087 . 10.0.0.2 . 8080", "affinity-endpoints 1701734803 . 3322671087 . 10.0.0.3 . 8080",
		}},
		{"the node's own address, which has node ports", web.External(modeltest.NodeIP4), one, []string{
			toClusterIP, slot0, "remember-ips 192.168.0.2 . tcp . 80 : return",
			"service-ips 192.168.0.2 . tcp . 80 : goto endpoints-0-to-2",
			"endpoints 192.168.0.2 . tcp . 80 . 0 : 10.0.0.2 . 8080",
			"source-nat 192.168.0.2 . tcp . 80 : goto masquerade-all",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := modeltest.Snapshot(modeltest.Config(), tt.service, tt.slice, modeltest.OurNode()).Family(model.IPv4)
			table := compile.Options{}.Compile(nil, s).OfPort(modeltest.PortName("ns1/web", "http", model.TCP))
			var got []string
			for set, elements := range table.Elements {
				for _, e := range elements {
					e.Comment = ""
					got = append(got, set+" "+text(model.IPv4, set, e))
				}
			}
			slices.Sort(got)
			testaid.Equal(t, "elements", slices.Sorted(slices.Values(tt.want)), got)
		})
	}
}
