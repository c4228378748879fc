package kernel

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/vmapd/vmapd/model"
)

// manyService is one of n endpoints on 172.30.1.x, with affinity or without.
func manyService(b *model.Builder, x, n int, affinity bool) netip.Addr {
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
	return addr
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

// BenchmarkOneEndpointWithAffinity goes from a changed EndpointSlice to the end of Apply:
// one endpoint of 1,000 is replaced, while so many clients are remembered.
func BenchmarkOneEndpointWithAffinity(b *testing.B) {
	const endpoints = 1000
	for _, tt := range []struct {
		name     string
		affinity bool
		clients  int
	}{{"without", false, 0}, {"clients-0", true, 0}, {"clients-1000", true, 1_000}, {"clients-60000", true, 60_000}} {
		b.Run(tt.name, func(b *testing.B) {
			n := newNetNS(b)
			backend := open(b, n)
			builder := model.NewBuilder(model.Config{})
			manyService(builder, 1, endpoints, tt.affinity)
			apply(b, backend, builder.Snapshot())
			if tt.affinity {
				const name = "affinity-default/many-1/udp/udp"
				list := make([]noted, tt.clients)
				for i := range list {
					list[i] = noted{client: i, lasts: time.Hour, left: time.Hour}
				}
				noteAt(b, backend, model.IPv4, name, list, func(c noted) netip.AddrPort {
					return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, 0, byte(c.client)}), 8080)
				})
			}
			version := 0
			for b.Loop() {
				version++
				manySlice(builder, 1, endpoints, version%10)
				if err := backend.Apply(b.Context(), builder.Snapshot()); err != nil {
					b.Fatal(err)
				}
			}
			if got := backend.Stats(model.IPv4).Batches; got < uint64(version) {
				b.Fatalf("%d batches for %d changes", got, version)
			}
		})
	}
}
