package localhost

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/model"
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

func newChooser(a model.Algorithm, affinity time.Duration, numbers ...int) *chooser {
	c := new(chooser)
	c.set(want{algorithm: a, affinity: affinity, endpoints: endpoints(numbers...)})
	return c
}

// chosen returns the last byte of the endpoint that is chosen.
func chosen(t *testing.T, c *chooser, client netip.Addr, avoid ...netip.AddrPort) int {
	t.Helper()
	e, ok := c.choose(client, avoid)
	if !ok {
		t.Fatal("there are endpoints, but none was chosen")
	}
	return int(e.Addr().As4()[3])
}

// connected is chosen for a client whose connection is accepted.
func connected(t *testing.T, c *chooser, client netip.Addr) int {
	t.Helper()
	n := chosen(t, c, client)
	c.remember(client, endpoints(n)[0])
	return n
}

func TestAlgorithms(t *testing.T) {
	const rounds = 40_000
	count := func(c *chooser, client func(int) netip.Addr) map[int]int {
		n := map[int]int{}
		for i := range rounds {
			n[chosen(t, c, client(i))]++
		}
		return n
	}
	one := func(int) netip.Addr { return clientAddr(1) }
	evenly := map[int]int{2: rounds / 4, 3: rounds / 4, 4: rounds / 4, 5: rounds / 4}
	if diff := cmp.Diff(evenly, count(newChooser(model.RoundRobin, 0, 2, 3, 4, 5), one)); diff != "" {
		t.Errorf("round-robin (-want +got):\n%s", diff)
	}
	if got := count(newChooser(model.SourceHash, 0, 2, 3, 4, 5), one); len(got) != 1 {
		t.Errorf("source-hash sends one client to %v", got)
	}
	for name, got := range map[string]map[int]int{
		"random, one client":        count(newChooser(model.Random, 0, 2, 3, 4, 5), one),
		"source-hash, many clients": count(newChooser(model.SourceHash, 0, 2, 3, 4, 5), clientAddr),
	} {
		for e, want := range evenly {
			if got[e] < want*9/10 || got[e] > want*11/10 { // 11 standard deviations
				t.Errorf("%s: endpoint %d got %d of %d", name, e, got[e], rounds)
			}
		}
	}
}

func TestRoundRobinTakesTurns(t *testing.T) {
	c := newChooser(model.RoundRobin, 0, 2, 3, 4)
	var got []int
	for n := range 7 {
		got = append(got, chosen(t, c, clientAddr(n)))
	}
	if diff := cmp.Diff([]int{2, 3, 4, 2, 3, 4, 2}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Documented at model.SourceHash: the same endpoint while their number stays.
func TestSourceHashKeepsWhoStays(t *testing.T) {
	c := newChooser(model.SourceHash, 0, 2, 3, 4, 5, 6)
	before := map[int]int{}
	for n := range 1000 {
		before[n] = chosen(t, c, clientAddr(n))
	}
	c.set(want{algorithm: model.SourceHash, endpoints: endpoints(1, 2, 4, 5, 6)}) // 3 left, 1 came
	for n, e := range before {
		now := chosen(t, c, clientAddr(n))
		if e == 3 && now != 1 || e != 3 && now != e {
			t.Errorf("client %d was sent to %d, and now to %d", n, e, now)
		}
	}
}

func TestPlacesAreKept(t *testing.T) {
	for _, c := range []struct{ old, list, want []int }{
		{nil, []int{2, 3, 4}, []int{2, 3, 4}},
		{[]int{2, 3, 4}, []int{2, 3, 4, 5}, []int{2, 3, 4, 5}},
		{[]int{2, 3, 4}, []int{1, 2, 3, 4}, []int{2, 3, 4, 1}},
		{[]int{2, 3, 4}, []int{3, 4, 5}, []int{5, 3, 4}},
		{[]int{2, 3, 4}, []int{3, 4}, []int{4, 3}},
		{[]int{2, 3, 4}, []int{7, 8}, []int{7, 8}},
		{[]int{4, 2}, []int{2, 4}, []int{4, 2}},
		{[]int{2, 3, 4}, nil, nil},
	} {
		got, present := place(endpoints(c.old...), endpoints(c.list...))
		if !slices.Equal(got, endpoints(c.want...)) || len(present) != len(c.list) {
			t.Errorf("%v, then %v: want %v, got %v, %d present", c.old, c.list, c.want, got, len(present))
		}
	}
}

func TestAvoidedEndpointsAreNotChosen(t *testing.T) {
	for _, a := range []model.Algorithm{model.Random, model.RoundRobin, model.SourceHash} {
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

func TestAffinity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChooser(model.RoundRobin, time.Minute, 2, 3, 4)
		expect := func(what string, client, want int) {
			t.Helper()
			if got := connected(t, c, clientAddr(client)); got != want {
				t.Errorf("%s: want %d, got %d", what, want, got)
			}
		}
		expect("first client", 1, 2)
		expect("second client", 2, 3)
		for range 3 {
			time.Sleep(59 * time.Second)
			expect("each connection makes it last", 1, 2)
		}
		expect("the second client was away for too long", 2, 4)
		time.Sleep(time.Minute)
		expect("a minute is too long", 1, 2) // its turn
		expect("a minute is too long", 1, 2) // remembered

		c.set(want{algorithm: model.RoundRobin, affinity: time.Minute, endpoints: endpoints(3, 4, 5)})
		expect("its endpoint left", 1, 3) // slots 5 3 4
		c.set(want{algorithm: model.RoundRobin, affinity: time.Hour, endpoints: endpoints(3, 4, 5)})
		time.Sleep(59 * time.Minute)
		expect("a longer timeout is for all", 1, 3)
		c.set(want{algorithm: model.RoundRobin, affinity: 0, endpoints: endpoints(3, 4, 5)})
		expect("without affinity", 1, 4)
		expect("without affinity", 1, 5)
	})
}

func TestAffinityRemembersManyClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChooser(model.RoundRobin, time.Hour, 2, 3, 4)
		for n := range maxRemembered + 1 {
			connected(t, c, clientAddr(n))
			time.Sleep(time.Millisecond)
			connected(t, c, clientAddr(0)) // never the oldest
		}
		if len(c.clients) != maxRemembered {
			t.Errorf("want %d clients remembered, got %d", maxRemembered, len(c.clients))
		}
		for n, want := range map[int]bool{0: true, 1: false, 2: true, maxRemembered: true} {
			if _, got := c.clients[clientAddr(n)]; got != want {
				t.Errorf("client %d is remembered: %v", n, got)
			}
		}
	})
}
