package modeltest

import (
	"fmt"
	"net/netip"

	"github.com/vmapd/vmapd/model"
)

// Hostile is a Service that multiplies addresses, ports and endpoints.
type Hostile struct{ Addresses, Ports, Endpoints int }

// HostileServices are some, each of which is over another budget.
func HostileServices() []Hostile {
	return []Hostile{
		{Addresses: 5_000, Ports: 1, Endpoints: 1_000},
		{Ports: 10_000, Endpoints: 10},
		{Addresses: 60_000, Ports: 1, Endpoints: 1},
		{Ports: 1, Endpoints: 50_000},
		{Ports: 5_000, Endpoints: 20_000},
	}
}

// Set adds the Service and its slices.
func (h Hostile) Set(b *model.Builder) {
	address := func(net byte, i int) string {
		return netip.AddrFrom4([4]byte{net, byte(i >> 16), byte(i >> 8), byte(i)}).String()
	}
	service, slice := NewService("tenant/hostile").On("172.30.9.9"), NewSlice("", "hostile")
	for i := range h.Addresses {
		service.ExternalIPs = append(service.ExternalIPs, address(20, i+1))
	}
	for i := range h.Ports {
		name := fmt.Sprintf("p%d", i)
		service, slice = service.TCP(name, int32(i+1)), slice.TCP(name, int32(i+1))
	}
	service.Set(b)
	const perSlice = 1_000 // the API's maximum
	for first := 0; first < h.Endpoints; first += perSlice {
		slice.NamespacedName = Name(fmt.Sprintf("tenant/hostile-%d", first))
		slice.Endpoints = nil
		for i := range min(perSlice, h.Endpoints-first) {
			slice = slice.Local(address(10, 1<<20+first+i))
		}
		slice.Set(b)
	}
}
