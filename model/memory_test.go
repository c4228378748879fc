package model

import (
	"fmt"
	"maps"
	"testing"
)

// sizes returns the sizes of all fields that grow with the objects.
func (b *Builder) sizes() map[string]int {
	all := map[string]int{
		"records": len(b.records), "slices": len(b.slices), "cidrs": len(b.cidrs), "dirty": cap(b.dirty),
		"claims": len(b.claims), "problems": len(b.problems),
		"snapshot problems": len(b.last.Problems),
	}
	for _, f := range Families {
		s, e := b.last.Family(f), &b.edit.families[f]
		all[f.String()+" counts"] = len(e.clusterIPs.more) + len(e.hairpins.more) + len(e.endpoints.more)
		all[f.String()+" ports"] = s.ports.Len()
		all[f.String()+" cluster IPs"] = s.ClusterIPs.Len()
		all[f.String()+" hairpins"] = s.Hairpins.Len()
		all[f.String()+" endpoints"] = s.ServiceEndpoints.Len()
	}
	maps.DeleteFunc(all, func(_ string, n int) bool { return n == 0 })
	return all
}

// Clusters create and delete Services for years: nothing of them may stay behind, in
// any order in which their parts go.
func TestNothingStaysBehind(t *testing.T) {
	service := func(i int) Service {
		return Service{
			NamespacedName: NamespacedName{"ns1", fmt.Sprintf("s%d", i)},
			ClusterIPs:     []string{fmt.Sprintf("172.30.0.%d", i), fmt.Sprintf("fd00:172:30::%d", i), "nowhere"},
			ExternalIPs:    []string{"192.168.99.11"}, // each wants it
			Ingress:        []Ingress{{IP: "192.168.98.11"}},
			SourceRanges:   []string{"203.0.113.0/25", "nowhere"},
			Annotations:    map[string]string{AnnotationAlgorithm: "none"},
			Ports:          []Port{{Name: "a", Port: 80, NodePort: 30001}, {Name: "b", Port: 80}, {Name: "c", Port: 0}},
		}
	}
	slice := func(i int) EndpointSlice {
		return EndpointSlice{
			NamespacedName: NamespacedName{"ns1", fmt.Sprintf("s%d-x", i)},
			Labels:         map[string]string{LabelServiceName: fmt.Sprintf("s%d", i)},
			AddressType:    "IPv4",
			Ports:          []SlicePort{{Name: new("a"), Port: new(int32(80))}, {}},
			Endpoints:      []SliceEndpoint{{Addresses: []string{"10.0.0.2"}, NodeName: "node-1", HintZones: []string{"zone-a"}}, {}},
		}
	}
	for _, order := range []struct {
		name string
		gone func(b *Builder, i int)
	}{
		{"the Service goes first", func(b *Builder, i int) {
			b.DeleteService(service(i).NamespacedName)
			b.Snapshot()
			b.DeleteEndpointSlice(slice(i).NamespacedName)
		}},
		{"the slice goes first", func(b *Builder, i int) {
			b.DeleteEndpointSlice(slice(i).NamespacedName)
			b.Snapshot()
			b.DeleteService(service(i).NamespacedName)
		}},
		{"both go at once", func(b *Builder, i int) {
			b.DeleteEndpointSlice(slice(i).NamespacedName)
			b.DeleteService(service(i).NamespacedName)
		}},
		{"the Service becomes headless, the slice loses its label", func(b *Builder, i int) {
			s := service(i)
			s.ClusterIPs = []string{"None"}
			b.SetService(s)
			e := slice(i)
			e.Labels = nil
			b.SetEndpointSlice(e)
			b.Snapshot()
			b.DeleteService(s.NamespacedName)
			b.DeleteEndpointSlice(e.NamespacedName)
		}},
	} {
		t.Run(order.name, func(t *testing.T) {
			b := NewBuilder(Config{NodeName: "node-1", DropInvalid: true})
			b.SetServiceCIDR(ServiceCIDR{"kubernetes", []string{"172.30.0.0/16", "nowhere"}})
			b.SetNode(Node{Name: "node-1", Addresses: []string{"nowhere"}, Zone: "zone-a", PodCIDRs: []string{"nowhere"}})
			for i := 2; i < 10; i++ {
				b.SetService(service(i))
				b.SetEndpointSlice(slice(i))
				headless := service(i + 100)
				headless.ClusterIPs = []string{"None"}
				b.SetService(headless)
				if i%3 == 0 {
					b.Snapshot()
				}
			}
			for i := 2; i < 10; i++ {
				order.gone(b, i)
				b.DeleteService(service(i + 100).NamespacedName)
				if i%2 == 0 {
					b.Snapshot()
				}
			}
			b.DeleteServiceCIDR("kubernetes")
			b.DeleteNode("node-1")
			b.Snapshot()
			// The Node's last addresses stay in use, of which a problem tells.
			want := map[string]int{"problems": 1, "snapshot problems": 1}
			if left := b.sizes(); !maps.Equal(want, left) {
				t.Errorf("everything was deleted, and these are left: %v, want %v", left, want)
			}
		})
	}
}
