package modeltest

import (
	"net/netip"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// A World is a small cluster: two Services, two endpoints, the first of them on this node, and two
// addresses. Both Services have port 80 of TCP and of UDP. All worlds together have every case in which two
// Services can meet.
type World [2]ServiceState

// A ServiceState is what varies of one Service of a World. The zero value is no Service.
type ServiceState struct {
	Place     Place
	Endpoints Ready
	Local     bool // the traffic policies, internal and external
	Sticky    bool // session affinity
	Algorithm string
}

// Place says at which of the two addresses a Service answers.
type Place uint8

// The places. The two Services may claim the same one: then the first of them gets it.
const (
	Nowhere         Place = iota // there is no Service
	AtFirst                      // the first address is its cluster IP
	AtSecond                     // the second address is
	AtFirstAndPort               // the first; the second is its external IP, and it has the node port
	AtSecondAndPort              // the second; the first is its external IP, and it has the node port
	places
)

// Ready says which endpoints a Service has.
type Ready uint8

// The endpoints. SecondThenFirst is Both, where the second one was there before.
const (
	None Ready = iota
	First
	Second
	Both
	SecondThenFirst
)

// Addresses of worlds.
const (
	FirstVIP       = "172.30.0.1"
	SecondVIP      = "172.30.0.2"
	OtherVIP       = "172.30.0.9"
	FirstEndpoint  = "10.0.0.2"
	SecondEndpoint = "10.0.0.3"
	WorldPort      = 80
	worldNodePort  = 30080
	unused         = 81
)

// WorldConfig is the configuration of a node in a World. It knows which clients are pods, so that traffic
// policies and source NAT depend on the client.
func WorldConfig() model.Config {
	c := Config()
	c.LocalPods = model.LocalPods{ClusterCIDRs: prefixes("10.0.0.0/8")}
	return c
}

// WorldObjects are the objects of every World.
func WorldObjects() []Object {
	return []Object{OurNode(), NewServiceCIDR("kubernetes", "172.30.0.0/16")}
}

// ServiceStates returns all states of a Service with an algorithm, "" for the default. With orders, the
// same endpoints in another order are another state, see SecondThenFirst.
func ServiceStates(algorithm string, orders bool) []ServiceState {
	all := []ServiceState{{}}
	last := Both
	if orders {
		last = SecondThenFirst
	}
	for p := AtFirst; p < places; p++ {
		for e := None; e <= last; e++ {
			for n := range 4 {
				all = append(all, ServiceState{p, e, n&1 > 0, n&2 > 0, algorithm})
			}
		}
	}
	return all
}

// Final returns the state without the order of endpoints.
func (s ServiceState) Final() ServiceState {
	if s.Endpoints == SecondThenFirst {
		s.Endpoints = Both
	}
	return s
}

// Before returns the state from which the order of endpoints comes, or s itself.
func (s ServiceState) Before() ServiceState {
	if s.Endpoints == SecondThenFirst {
		s.Endpoints = Second
	}
	return s
}

// Exchanged reports whether another state is the same with the two addresses exchanged: of one Service
// alone, only one of them need be tried.
func (s ServiceState) Exchanged() bool { return s.Place == AtSecond || s.Place == AtSecondAndPort }

// Final is ServiceState.Final for both.
func (w World) Final() World { return World{w[0].Final(), w[1].Final()} }

// Before is ServiceState.Before for both.
func (w World) Before() World { return World{w[0].Before(), w[1].Before()} }

// Set gives a Builder what differs from another World.
func (w World) Set(b *model.Builder, have World) {
	for i, s := range w {
		if s != have[i] {
			s.set(b, i)
		}
	}
}

func worldName(i int) string { return "ns1/" + string(rune('a'+i)) }

func (s ServiceState) set(b *model.Builder, i int) {
	name := worldName(i)
	service := NewService(name).CreatedAt(i)
	slice := NewSlice(name+"-1", service.Name).TCP("tcp", 8080).UDP("udp", 8080)
	if s.Place == Nowhere {
		service.Delete(b)
		slice.Delete(b)
		return
	}
	vips := [...]string{FirstVIP, SecondVIP}
	own := int(s.Place-AtFirst) % len(vips)
	service = service.On(vips[own]).Algorithm(s.Algorithm)
	port := model.Port{Port: WorldPort}
	if s.Place >= AtFirstAndPort {
		service, port.NodePort = service.External(vips[1-own]), worldNodePort
	}
	for _, p := range []string{"tcp", "udp"} {
		port.Name, port.Protocol = p, strings.ToUpper(p)
		service = service.Port(port)
	}
	if s.Local {
		service = service.Policies("Local", "Local")
	}
	if s.Sticky {
		service = service.Sticky(60)
	}
	service.Set(b)
	if s.Endpoints == First || s.Endpoints >= Both {
		slice = slice.Local(FirstEndpoint)
	}
	if s.Endpoints >= Second {
		slice = slice.Ready(SecondEndpoint)
	}
	slice.Set(b)
}

// WorldConnections are connections of every kind in a World: from an endpoint, another pod, the node and
// outside, to each address and node port, to ports that no Service has, to an address of none.
func WorldConnections() []model.Connection {
	var all []model.Connection
	for _, c := range [...]model.Connection{
		{Source: netip.MustParseAddr(FirstEndpoint), Interface: PodInterface},
		{Source: netip.MustParseAddr("10.0.0.9"), Interface: PodInterface},
		{Source: netip.MustParseAddr(NodeIP4), Node: true},
		{Source: netip.MustParseAddr("203.0.113.9"), Interface: Uplink},
	} {
		for _, to := range [...]struct {
			addr string
			port uint16
		}{
			{FirstVIP, WorldPort},
			{FirstVIP, unused},
			{SecondVIP, WorldPort},
			{SecondVIP, unused},
			{NodeIP4, worldNodePort},
			{OtherVIP, WorldPort},
		} {
			for _, p := range [...]model.Protocol{model.TCP, model.UDP} {
				c.Dest, c.Protocol = netip.AddrPortFrom(netip.MustParseAddr(to.addr), to.port), p
				all = append(all, c)
			}
		}
	}
	return all
}
