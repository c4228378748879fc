package status

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/model"
)

// One is the answer about one Service.
type One struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Ports     []Port   `json:"ports"`
	Problems  []string `json:"problems,omitempty"`
	Notes     []string `json:"notes,omitempty"` // what could not be found out, and why
}

// Port is a service port with all about it.
type Port struct {
	Service
	Addresses []Address  `json:"addresses,omitempty"`
	Backends  []Endpoint `json:"endpointList,omitempty"`
	More      int        `json:"moreEndpoints,omitempty"` // than those of the list
	Settings  []string   `json:"settings,omitempty"`      // that are not the usual ones
	// Connections is the number of new connections since counting began, Tracked that of entries in connection
	// tracking; nil: they are not counted.
	Connections *uint64 `json:"connections,omitempty"`
	Tracked     *int    `json:"trackedConnections,omitempty"`
	// Rules are the maps and chains that connections meet, each with indented lines below its name.
	Rules []string `json:"rules,omitempty"`
}

// Address is an address, or a node port, of a service port.
type Address struct {
	Kind          string     `json:"kind"`             // for example "cluster IP"
	Address       netip.Addr `json:"address,omitzero"` // none: a node port
	Port          uint16     `json:"port"`
	State         State      `json:"state"`
	TrafficPolicy string     `json:"trafficPolicy"`        // Cluster or Local
	Restricted    bool       `json:"restricted,omitempty"` // by source ranges
}

// Endpoint is an endpoint of a service port.
type Endpoint struct {
	Address netip.AddrPort `json:"address"`
	Place
	OnThisNode bool `json:"onThisNode,omitempty"`
	// Share and LocalShare are the shares of new connections: of those to any endpoint, and of those that the policy
	// Local keeps on this node. They are 0 where no connection is treated so.
	Share      float64 `json:"share"`
	LocalShare float64 `json:"localShare,omitempty"`
	Tracked    *int    `json:"trackedConnections,omitempty"`
	State      string  `json:"state"`
}

// Place is where an endpoint is, and its state in the words of the API; "": not known.
type Place struct {
	Pod       string `json:"pod,omitempty"`
	Node      string `json:"node,omitempty"`
	Zone      string `json:"zone,omitempty"`
	Condition string `json:"condition,omitempty"`
}

// Places are the endpoints of one Service in its EndpointSlices.
type Places map[PlaceKey]Place

// PlaceKey names an endpoint of a port.
type PlaceKey struct {
	Port     string
	Protocol model.Protocol
	Endpoint netip.AddrPort
}

// Add adds the endpoints of a slice.
func (p Places) Add(s *discoveryv1.EndpointSlice) {
	for _, port := range s.Ports {
		protocol, err := model.ParseProtocol(string(ptr.Deref(port.Protocol, corev1.ProtocolTCP)))
		if err != nil || port.Port == nil {
			continue
		}
		for _, e := range s.Endpoints {
			if len(e.Addresses) == 0 {
				continue
			}
			addr, err := model.ParseAddr(e.Addresses[0])
			if err != nil {
				continue
			}
			to := netip.AddrPortFrom(addr, uint16(*port.Port)) //nolint:gosec // validated by the API server
			p[PlaceKey{ptr.Deref(port.Name, ""), protocol, to}] = placeOf(e)
		}
	}
}

func placeOf(e discoveryv1.Endpoint) Place {
	p := Place{Node: ptr.Deref(e.NodeName, ""), Zone: ptr.Deref(e.Zone, "")}
	if e.TargetRef != nil && e.TargetRef.Kind == "Pod" {
		p.Pod = e.TargetRef.Name
	}
	switch {
	case ptr.Deref(e.Conditions.Terminating, false):
		p.Condition = "terminating"
	case !ptr.Deref(e.Conditions.Ready, true):
		p.Condition = "not ready"
	}
	return p
}

// Found is what the daemon finds out about a Service beside a View.
type Found struct {
	Places Places
	Counts Counts
	Flows  *Flows // nil: connection tracking was not read
	Rules  func(*model.ServicePort) []string
	Notes  []string
	Most   int // endpoints of a port; 0: all
}

// Ports returns the ports of a Service.
func (v *View) Ports(name model.NamespacedName) []*model.ServicePort {
	return v.ports(Filter{Namespace: name.Namespace, Name: name.Name})
}

// One returns all about a Service. It is not ok if the daemon serves none of that name.
func (v *View) One(name model.NamespacedName, found Found) (one One, ok bool) {
	one = One{Namespace: name.Namespace, Name: name.Name, Ports: []Port{}, Notes: found.Notes}
	filter := Filter{Namespace: name.Namespace, Name: name.Name}
	for _, p := range v.problems(filter)[name] {
		one.Problems = append(one.Problems, reasonOf(p))
	}
	for _, sp := range v.ports(filter) {
		one.Ports = append(one.Ports, v.port(sp, found))
	}
	return one, len(one.Ports)+len(one.Problems) > 0
}

func (v *View) port(sp *model.ServicePort, found Found) Port {
	p := Port{Service: v.service(sp), Settings: settings(sp), Backends: endpoints(sp, found)}
	for _, fe := range sp.Frontends {
		a := Address{
			Kind: fe.Kind.String(), Port: fe.VIP.Port, State: report.OfAction(fe.Action),
			TrafficPolicy: [...]string{model.Cluster: "Cluster", model.Local: "Local"}[fe.TrafficPolicy], Restricted: fe.Restricted,
		}
		if fe.Kind != model.NodePort {
			a.Address = fe.VIP.Addr
		}
		p.Addresses = append(p.Addresses, a)
	}
	if n, ok := found.Counts[sp]; ok {
		p.Connections = &n
	}
	if found.Flows != nil {
		n := 0
		for k, number := range found.Flows.counts {
			if k.port == sp {
				n += number
			}
		}
		p.Tracked = &n
	}
	if found.Rules != nil {
		p.Rules = found.Rules(sp)
	}
	if found.Most > 0 && len(p.Backends) > found.Most {
		p.Backends, p.More = p.Backends[:found.Most], len(p.Backends)-found.Most
	}
	return p
}

// settings returns the settings of a service port that are not the usual ones.
func settings(sp *model.ServicePort) (list []string) {
	if sp.Algorithm != model.Random {
		list = append(list, "algorithm "+sp.Algorithm.String())
	}
	if sp.Affinity > 0 {
		list = append(list, fmt.Sprintf("session affinity for %v", sp.Affinity))
	}
	if sp.ConnectionGrace > 0 {
		list = append(list, fmt.Sprintf("connections to endpoints that are gone end after %v", sp.ConnectionGrace))
	}
	if len(sp.SourceRanges) > 0 {
		list = append(list, fmt.Sprintf("sources %v", sp.SourceRanges))
	}
	return list
}

// endpoints returns the endpoints of a service port: those that serve, those that drain, and others of the Service.
func endpoints(sp *model.ServicePort, found Found) (list []Endpoint) {
	has := map[netip.AddrPort]bool{}
	add := func(e Endpoint) {
		if has[e.Address] {
			return
		}
		has[e.Address] = true
		e.Place = found.Places[PlaceKey{sp.Name.Port, sp.Name.Protocol, e.Address}]
		e.Tracked = found.Flows.of(sp, e.Address)
		list = append(list, e)
	}
	for _, e := range sp.Endpoints {
		one := Endpoint{Address: e.Addr, OnThisNode: e.Local, State: "serving"}
		if n := sp.Count(model.Cluster); e.In(model.Cluster) && n > 0 {
			one.Share = 1 / float64(n)
		}
		if n := sp.Count(model.Local); e.In(model.Local) && n > 0 {
			one.LocalShare = 1 / float64(n)
		}
		add(one)
	}
	for _, a := range sp.Draining {
		add(Endpoint{Address: a, State: "draining"})
	}
	serving := len(list)
	for k, place := range found.Places {
		if k.Port == sp.Name.Port && k.Protocol == sp.Name.Protocol && model.FamilyOf(k.Endpoint.Addr()) == sp.Family {
			add(Endpoint{Address: k.Endpoint, State: cmp.Or(place.Condition, "not used")})
		}
	}
	if found.Flows != nil {
		for k := range found.Flows.counts {
			if k.port == sp {
				add(Endpoint{Address: k.endpoint, State: "gone"})
			}
		}
	}
	slices.SortFunc(list[serving:], func(a, b Endpoint) int { return a.Address.Compare(b.Address) })
	return list
}
