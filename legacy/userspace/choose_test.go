package userspace

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// endpoints are addresses of pods, in their order.
func endpoints(numbers ...int) []netip.AddrPort {
	var list []netip.AddrPort
	for _, n := range numbers {
		list = append(list, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}), 8080))
	}
	return list
}

func clientAddr(n int) netip.Addr {
	b := [4]byte{127}
	binary.BigEndian.PutUint16(b[2:], uint16(n))
	return netip.AddrFrom4(b)
}

// testChooser chooses endpoints of one service port.
type testChooser struct {
	*Forwarder
	port *model.ServicePort
}

func newChooser(a model.Algorithm, affinity time.Duration, numbers ...int) *testChooser {
	c := &testChooser{Forwarder: New(Options{})}
	c.set(a, affinity, numbers...)
	return c
}

func (c *testChooser) set(a model.Algorithm, affinity time.Duration, numbers ...int) {
	var pods []string
	for _, e := range endpoints(numbers...) {
		pods = append(pods, e.Addr().String())
	}
	web := modeltest.NewService("ns1/web").On("172.30.0.41").TCP("http", 80).Algorithm(a.String())
	if affinity > 0 {
		web = web.Sticky(int32(affinity / time.Second))
	}
	s := modeltest.Snapshot(config(true), modeltest.OurNode(), web, slice(model.IPv4, "TCP", pods...))
	for sp := range s.Family(model.IPv4).ServicePorts() {
		c.port = sp
	}
	c.now.Store(want(s, false))
}

func (c *testChooser) decision(client netip.Addr) model.Decision {
	at := netip.MustParseAddrPort("172.30.0.41:80")
	return model.Decision{
		Connection: model.Connection{Source: client, SourcePort: modeltest.ClientPort, Dest: at, Protocol: model.TCP},
		Port:       c.port, TrafficPolicy: model.Cluster,
	}
}

func (c *testChooser) choose(client netip.Addr, avoid []netip.AddrPort) (netip.AddrPort, bool) {
	return c.Forwarder.choose(c.decision(client), avoid)
}

func (c *testChooser) remember(client netip.Addr, endpoint netip.AddrPort) {
	fl := &flow{Decision: c.decision(client), endpoint: endpoint, end: func() {}}
	c.begin(fl)
	c.finish(fl)
}

// chosen returns the last byte of the endpoint that is chosen.
func chosen(t *testing.T, c *testChooser, client netip.Addr, avoid ...netip.AddrPort) int {
	t.Helper()
	e, ok := c.choose(client, avoid)
	if !ok {
		t.Fatal("there are endpoints, but none was chosen")
	}
	return int(e.Addr().As4()[3])
}

// connected is chosen for a client whose connection is accepted.
func connected(t *testing.T, c *testChooser, client netip.Addr) int {
	t.Helper()
	n := chosen(t, c, client)
	c.remember(client, endpoints(n)[0])
	return n
}

func TestAvoidedEndpointsAreNotChosen(t *testing.T) {
	for _, a := range model.Algorithms {
		t.Run(a.String(), func(t *testing.T) {
			c := newChooser(a, time.Minute, 2, 3, 4)
			c.remember(clientAddr(1), endpoints(2)[0]) // affinity is no reason to go there
			for range 100 {
				if got := chosen(t, c, clientAddr(1), endpoints(2, 4, 9)...); got != 3 {
					t.Fatalf("only 3 was not to be avoided, got %d", got)
				}
			}
			if e, ok := c.choose(clientAddr(1), endpoints(2, 3, 4)); ok {
				t.Errorf("all were to be avoided, got %v", e)
			}
		})
	}
}

// TestAffinity connects so many clients that by chance alone, not all of them get their endpoint again.
func TestAffinity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChooser(model.Random, time.Minute, 2, 3, 4)
		connect := func() (got [100]int) {
			for n := range got {
				got[n] = connected(t, c, clientAddr(n))
			}
			return got
		}
		had := connect()
		expect := func(what string, same bool) {
			t.Helper()
			now := connect()
			if (now == had) != same {
				t.Errorf("%s: clients that had %v now have %v", what, had, now)
			}
			had = now
		}
		for range 3 {
			time.Sleep(59 * time.Second)
			expect("each connection makes it last", true)
		}
		time.Sleep(time.Minute)
		expect("a minute is too long", false)
		expect("they are remembered again", true)

		c.set(model.Random, time.Minute, 3, 4, 5)
		for n, e := range connect() {
			if had[n] != 2 && e != had[n] || e == 2 {
				t.Errorf("2 left: client %d had %d, and now has %d", n, had[n], e)
			}
			had[n] = e
		}
		c.set(model.Random, time.Hour, 3, 4, 5)
		time.Sleep(59 * time.Minute)
		expect("a longer timeout is for all", true)
		c.set(model.Random, 0, 3, 4, 5)
		expect("without affinity", false)
	})
}

func TestAffinityRemembersManyClients(t *testing.T) {
	c := newChooser(model.Random, time.Hour, 2, 3, 4)
	first, more := netip.MustParseAddr("10.1.0.0"), netip.MustParseAddr("10.1.0.0")
	for range mostVisitors + 10 {
		c.remember(more, endpoints(2)[0])
		more = more.Next()
	}
	if n := len(c.visitors); n != mostVisitors {
		t.Errorf("want %d clients remembered, got %d", mostVisitors, n)
	}
	c.set(model.Random, 0, 2)
	c.remember(first, endpoints(2)[0])
	if n := len(c.visitors); n != mostVisitors {
		t.Errorf("without affinity, nobody is remembered, got %d", n)
	}
}

// The chooser has the model's table: the decision's client gets the endpoint that nftables gives it.
func TestTableOfTheModel(t *testing.T) {
	for _, a := range []model.Algorithm{model.Maglev, model.MaglevPort} {
		c := newChooser(a, 0, 2, 3, 4, 5, 6)
		for i := range 100 {
			client := clientAddr(i)
			d := model.Decision{
				Connection: model.Connection{Source: client, SourcePort: modeltest.ClientPort}, Port: c.port, TrafficPolicy: model.Cluster,
			}
			for e := range c.port.In(model.Cluster) {
				d.Targets = append(d.Targets, model.Target{Endpoint: e})
			}
			want, ok := d.Chosen()
			got, _ := c.choose(client, nil)
			if !ok || got != want.Addr {
				t.Fatalf("%v: %v gets %v, want %v, %v", a, client, got, want.Addr, ok)
			}
			other, ok := c.choose(clientAddr(i+1), []netip.AddrPort{got})
			if before, _ := c.choose(clientAddr(i+1), nil); !ok || other == got || before != got && other != before {
				t.Fatalf("%v: without %v, %v gets %v, and else %v", a, got, clientAddr(i+1), other, before)
			}
		}
	}
}
