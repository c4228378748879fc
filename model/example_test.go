package model_test

import (
	"fmt"
	"net/netip"

	"github.com/vmapd/vmapd/model"
)

// exampleObjects returns a Service, and a slice with endpoints of it.
func exampleObjects(addrs ...string) (model.Service, model.EndpointSlice) {
	service := model.Service{
		NamespacedName: model.NamespacedName{Namespace: "ns1", Name: "web"},
		ClusterIPs:     []string{"172.30.0.41"},
		Ports:          []model.Port{{Port: 80}},
	}
	port := int32(8080)
	slice := model.EndpointSlice{
		NamespacedName: model.NamespacedName{Namespace: "ns1", Name: "web-1"},
		Labels:         map[string]string{model.LabelServiceName: "web"},
		AddressType:    "IPv4",
		Ports:          []model.SlicePort{{Port: &port}},
	}
	for _, a := range addrs {
		slice.Endpoints = append(slice.Endpoints, model.SliceEndpoint{Addresses: []string{a}})
	}
	return service, slice
}

// A Decision lists the endpoints of which a backend chooses one.
func ExampleDecide() {
	b := model.NewBuilder(model.Config{NodeName: "node-1", MasqueradeAll: true})
	service, slice := exampleObjects("10.0.0.2", "10.0.0.3")
	b.SetService(service)
	b.SetEndpointSlice(slice)

	for _, dest := range []string{"172.30.0.41:80", "172.30.0.41:81", "192.0.2.1:80"} {
		d := model.Decide(b.Snapshot(), model.Connection{
			Source: netip.MustParseAddr("10.0.0.9"), Dest: netip.MustParseAddrPort(dest), Protocol: model.TCP,
		})
		fmt.Println(dest, "is", d.Verdict)
		for _, target := range d.Targets {
			fmt.Println("\tto", target.Addr, "masqueraded:", target.SNAT.Masquerade())
		}
	}
	// Output:
	// 172.30.0.41:80 is forwarded
	// 	to 10.0.0.2:8080 masqueraded: true
	// 	to 10.0.0.3:8080 masqueraded: true
	// 172.30.0.41:81 is rejected
	// 192.0.2.1:80 is not ours
}
