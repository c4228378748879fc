package userspace

import (
	"encoding/binary"
	"net/netip"
	"slices"
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
	s := modeltest.Snapshot(config(true), modeltest.OurNode(), web, slice("TCP", pods...))
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

// choose returns the endpoints to try, by their last bytes.
func (c *testChooser) choose(client netip.Addr) (numbers []int) {
	for _, e := range c.Forwarder.choose(c.decision(client)) {
		numbers = append(numbers, int(e.Addr().As4()[3]))
	}
	return numbers
}

func (c *testChooser) remember(client netip.Addr, endpoint netip.AddrPort) {
	c.hold(&flow{Decision: c.decision(client), endpoint: endpoint}, func() {})
}

// connected is chosen for a client whose connection is accepted.
func connected(t *testing.T, c *testChooser, client netip.Addr) int {
	t.Helper()
	n := c.choose(client)[0]
	c.remember(client, endpoints(n)[0])
	return n
}

// All endpoints are tried, each once, up to a limit; chance decides about the order of those that nothing prefers.
func TestEachEndpointIsTriedOnce(t *testing.T) {
	for _, a := range []model.Algorithm{model.Random, model.Maglev, model.MaglevPort} {
		t.Run(a.String(), func(t *testing.T) {
			c := newChooser(a, time.Minute, 2, 3, 4)
			c.remember(clientAddr(1), endpoints(3)[0])
			second := map[int]bool{}
			for range 100 {
				got := c.choose(clientAddr(1))
				second[got[1]] = true
				if got[0] != 3 || !slices.Equal(slices.Sorted(slices.Values(got)), []int{2, 3, 4}) {
					t.Fatalf("want 3 first, and then the others, got %v", got)
				}
			}
			if a == model.Random && len(second) != 2 {
				t.Errorf("a hundred times, the second one was %v", second)
			}
			c.limits.tries = 2
			if got := c.choose(clientAddr(2)); len(got) != 2 || got[0] == got[1] {
				t.Errorf("want two of three, got %v", got)
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
		time.Sleep(time.Minute + time.Second)
		expect("more than a minute is too long", false)
		expect("they are remembered again", true)

		c.set(model.Random, time.Minute, 3, 4, 5)
		for n, e := range connect() {
			if had[n] != 2 && e != had[n] || e == 2 {
				t.Errorf("2 left: client %d had %d, and now has %d", n, had[n], e)
			}
			had[n] = e
		}
		c.set(model.Random, time.Hour, 3, 4, 5)
		had = connect()
		time.Sleep(59 * time.Minute)
		expect("another timeout is for those who come later", true)
		c.set(model.Random, 0, 3, 4, 5)
		expect("without affinity", false)
	})
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
			if got := c.Forwarder.choose(c.decision(client))[0]; !ok || got != want.Addr {
				t.Fatalf("%v: %v gets %v, want %v, %v", a, client, got, want.Addr, ok)
			}
		}
	}
}
