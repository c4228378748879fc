package modeltest

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vmapd/vmapd/model"
)

// A Turn is a connection in a pattern of connections that are repeated.
type Turn struct {
	Connection model.Connection
	Group      int // connections of one group take turns with one another
	Endpoints  int // among which they take turns
}

// RoundRobin is a cluster whose Services choose endpoints by round-robin, and patterns in which
// programs call them.
func RoundRobin() (b *model.Builder, patterns map[string][]Turn) {
	b = Builder(Config(), OurNode())
	var services []Service
	for i, name := range []string{"a", "b", "c"} {
		s := NewService("ns1/"+name).Typed("LoadBalancer").On(fmt.Sprintf("172.30.0.%d", 41+i)).
			External(fmt.Sprintf("192.168.99.%d", 41+i)).Algorithm("round-robin").TCP("http", 80).NodePort(int32(30041 + i))
		services = append(services, s)
		slice := NewSlice("ns1/"+name, name).TCP("http", int32(8080+i))
		slice = slice.Local("10.0.0.2", "10.0.0.3")
		if name == "c" {
			slice = slice.Local("10.0.0.4")
		}
		slice.Set(b)
	}
	services[2] = services[2].Policies("Cluster", "Local")
	for _, s := range services {
		s.Set(b)
	}
	to := func(group int, dest string) Turn {
		return Turn{model.Connection{
			Source: netip.MustParseAddr("203.0.113.9"), Dest: netip.MustParseAddrPort(dest), Protocol: model.TCP, Interface: Uplink,
		}, group, []int{2, 2, 3, 3}[group]}
	}
	return b, map[string][]Turn{
		"one Service":                     {to(0, "172.30.0.41:80")},
		"two Services":                    {to(0, "172.30.0.41:80"), to(1, "172.30.0.42:80")},
		"three Services":                  {to(0, "172.30.0.41:80"), to(1, "172.30.0.42:80"), to(2, "172.30.0.43:80")},
		"one twice as often as the other": {to(0, "172.30.0.41:80"), to(0, "172.30.0.41:80"), to(1, "172.30.0.42:80")},
		"node ports":                      {to(0, "192.168.0.2:30041"), to(1, "192.168.0.2:30042")},
		"external IPs":                    {to(0, "192.168.99.41:80"), to(1, "192.168.99.42:80")},
		"frontends of one Service":        {to(0, "172.30.0.41:80"), to(0, "192.168.0.2:30041"), to(0, "192.168.99.41:80")},
		"a policy that is Local for some": {to(2, "172.30.0.43:80"), to(3, "192.168.0.2:30043"), to(3, "192.168.99.43:80")},
	}
}

// CheckTurns repeats a pattern. connect returns the endpoint that a connection gets. It is an error
// if the connections of a group do not get all endpoints in turn, again and again.
func CheckTurns(pattern []Turn, connect func(model.Connection) (netip.AddrPort, error)) error {
	const rounds = 12
	got := map[int][]netip.AddrPort{}
	for range rounds {
		for _, turn := range pattern {
			a, err := connect(turn.Connection)
			if err != nil {
				return err
			}
			got[turn.Group] = append(got[turn.Group], a)
		}
	}
	for _, turn := range pattern {
		list, n := got[turn.Group], turn.Endpoints
		for i, a := range list {
			if i < n && slices.Contains(list[:i], a) || i >= n && a != list[i-n] {
				return fmt.Errorf("%v does not get %d endpoints in turn, but %v", turn.Connection.Dest, n, list)
			}
		}
	}
	return nil
}
