package kernel

import (
	"fmt"
	"net/netip"

	"github.com/vmapd/vmapd/model"
)

// manyService is one of n endpoints on 172.30.1.x, with affinity or without.
func manyService(b *model.Builder, x, n int, affinity bool) {
	name := model.NamespacedName{Namespace: "default", Name: fmt.Sprintf("many-%d", x)}
	addr := netip.AddrFrom4([4]byte{172, 30, 1, byte(x)})
	service := model.Service{
		NamespacedName: name, ClusterIPs: []string{addr.String()},
		Ports: []model.Port{{Name: "udp", Protocol: "UDP", Port: 80}},
	}
	if affinity {
		service.SessionAffinity = "ClientIP"
	}
	b.SetService(service)
	manySlice(b, x, n, 0)
}

// manySlice sets its endpoints; the last one is another for each version.
func manySlice(b *model.Builder, x, n, version int) {
	name := fmt.Sprintf("many-%d", x)
	slice := model.EndpointSlice{
		NamespacedName: model.NamespacedName{Namespace: "default", Name: name}, AddressType: "IPv4",
		Labels: map[string]string{model.LabelServiceName: name},
		Ports:  []model.SlicePort{{Name: new("udp"), Protocol: new("UDP"), Port: new(int32(8080))}},
	}
	for i := range n {
		if i == n-1 {
			i += version
		}
		a := netip.AddrFrom4([4]byte{10, byte(x), byte(i >> 8), byte(i)})
		slice.Endpoints = append(slice.Endpoints, model.SliceEndpoint{Addresses: []string{a.String()}, NodeName: "node-2"})
	}
	b.SetEndpointSlice(slice)
}
