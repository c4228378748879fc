package model

import (
	"slices"
	"testing"
)

// A source asks for what it has set, served or not.
func TestVersionsAndNames(t *testing.T) {
	b := NewBuilder(Config{NodeName: "node-1"})
	name := func(s string) NamespacedName { return NamespacedName{"ns1", s} }
	b.SetService(Service{NamespacedName: name("a"), Version: 1, ClusterIPs: []string{"172.30.0.1"}})
	b.SetService(Service{NamespacedName: name("b"), Version: 2, Type: "ExternalName"})
	b.SetEndpointSlice(EndpointSlice{
		NamespacedName: name("c-1"), Version: 3, AddressType: "IPv4", Labels: map[string]string{LabelServiceName: "c"},
	})
	b.SetEndpointSlice(EndpointSlice{NamespacedName: name("d-1"), Version: 4, AddressType: "FQDN"})
	b.SetNode(Node{Name: "node-1"})
	b.SetNode(Node{Name: "node-2"})
	b.SetServiceCIDR(ServiceCIDR{Name: "kubernetes"})
	for ref, want := range map[ObjectRef]uint64{
		{"Service", name("a")}: 1, {"Service", name("b")}: 2, {"EndpointSlice", name("c-1")}: 3, {"EndpointSlice", name("d-1")}: 4,
		{"Node", NamespacedName{Name: "node-1"}}: 0, {"ServiceCIDR", NamespacedName{Name: "kubernetes"}}: 0,
	} {
		if got, known := b.Version(ref); got != want || !known {
			t.Errorf("%v has version %d and is known: %v, want %d", ref, got, known, want)
		}
	}
	for _, ref := range []ObjectRef{
		{"Service", name("c")},
		{"Service", name("none")},
		{"EndpointSlice", name("a")},
		{"Node", NamespacedName{Name: "node-2"}},
		{"ServiceCIDR", NamespacedName{Name: "none"}},
		{"Pod", name("a")},
	} {
		if got, known := b.Version(ref); got != 0 || known {
			t.Errorf("%v is known, with version %d", ref, got)
		}
	}
	want := map[string][]NamespacedName{
		"Service": {name("a"), name("b")}, "EndpointSlice": {name("c-1"), name("d-1")}, "Node": {{Name: "node-1"}},
		"ServiceCIDR": {{Name: "kubernetes"}},
	}
	for kind, want := range want {
		if got := b.Names(kind); !slices.Equal(slices.SortedFunc(slices.Values(got), compareNames), want) {
			t.Errorf("%s: names %v, want %v", kind, got, want)
		}
	}
	b.DeleteService(name("a"))
	b.DeleteService(name("b"))
	b.DeleteEndpointSlice(name("d-1"))
	b.DeleteNode("node-1")
	if left := [...]int{len(b.Names("Service")), len(b.Names("EndpointSlice")), len(b.Names("Node"))}; left != [...]int{0, 1, 0} {
		t.Errorf("%v names are left", left)
	}
}
