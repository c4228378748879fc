package status

import (
	"net/netip"

	"github.com/vmapd/vmapd/model"
)

// Endpoints is the answer about endpoints.
type Endpoints struct {
	Items []PortEndpoints `json:"items"`
	// Complete: all endpoints are listed, because one Service was asked for; else the first ones of each port.
	Complete bool `json:"complete"`
}

// PortEndpoints are the endpoints of one service port in one family.
type PortEndpoints struct {
	PortID
	State     State      `json:"state"`
	Reason    string     `json:"reason,omitempty"`
	Number    int        `json:"number"` // of all endpoints
	Endpoints []Endpoint `json:"endpoints,omitempty"`
}

// Endpoint is an endpoint of a service port.
type Endpoint struct {
	Address    netip.AddrPort `json:"address"`
	OnThisNode bool           `json:"onThisNode,omitempty"`
	// Share and LocalShare are the shares of new connections: of those to any endpoint, and of those that the policy
	// Local keeps on this node. They are 0 where no connection is treated so.
	Share      float64 `json:"share"`
	LocalShare float64 `json:"localShare,omitempty"`
	// Draining: it gets no new connections.
	Draining bool `json:"draining,omitempty"`
}

// someEndpoints is the number of endpoints of a service port where all Services are listed.
const someEndpoints = 3

// Endpoints returns the endpoints of the service ports that a filter chooses: all, if it names a Service.
func (v *View) Endpoints(filter Filter) Endpoints {
	ports := v.Ports(filter)
	out := Endpoints{Items: make([]PortEndpoints, 0, len(ports)), Complete: filter.Name != ""}
	for _, sp := range ports {
		s := v.service(sp)
		item := PortEndpoints{PortID: s.PortID, State: s.State, Reason: s.Reason, Number: len(sp.Endpoints) + len(sp.Draining)}
		most := item.Number
		if !out.Complete {
			most = min(most, someEndpoints)
		}
		item.Endpoints = endpoints(sp, most)
		out.Items = append(out.Items, item)
	}
	return out
}

// endpoints returns the first endpoints of a service port.
func endpoints(sp *model.ServicePort, most int) []Endpoint {
	share := [len(model.TrafficPolicies)]float64{}
	for _, p := range model.TrafficPolicies {
		if n := sp.Count(p); n > 0 {
			share[p] = 1 / float64(n)
		}
	}
	list := make([]Endpoint, 0, most)
	for _, e := range sp.Endpoints[:min(most, len(sp.Endpoints))] {
		one := Endpoint{Address: e.Addr, OnThisNode: e.Local}
		if e.In(model.Cluster) {
			one.Share = share[model.Cluster]
		}
		if e.In(model.Local) {
			one.LocalShare = share[model.Local]
		}
		list = append(list, one)
	}
	for _, a := range sp.Draining[:most-len(list)] {
		list = append(list, Endpoint{Address: a, Draining: true})
	}
	return list
}
