package compile

import (
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

func pods(numbers ...int) []netip.AddrPort {
	list := []netip.AddrPort{}
	for _, n := range numbers {
		list = append(list, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}), 80))
	}
	return list
}

// plainSlots says what keepSlots does: who has a slot keeps it, the others fill
// the holes.
func plainSlots(have, want []netip.AddrPort) []netip.AddrPort {
	list := make([]netip.AddrPort, len(want))
	var homeless []netip.AddrPort
	for _, a := range want {
		if i := slices.Index(have, a); i >= 0 && i < len(want) {
			list[i] = a
		} else {
			homeless = append(homeless, a)
		}
	}
	for i := range list {
		if !list[i].IsValid() {
			list[i], homeless = homeless[0], homeless[1:]
		}
	}
	return list
}

func TestKeepSlots(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 8))
		some := func() []int { return r.Perm(12)[:r.IntN(12)] }
		have, want := pods(some()...), pods(some()...)
		slices.SortFunc(want, netip.AddrPort.Compare)
		b := model.NewBuilder(model.Config{NodeName: "node-1"})
		modeltest.NewService("ns1/web").On("172.30.0.41").TCP("http", 80).Set(b)
		slice := modeltest.NewSlice("ns1/web-1", "web").TCP("http", 80)
		for _, a := range want {
			slice = slice.Ready(a.Addr().String())
		}
		slice.Set(b)
		for sp := range b.Snapshot().Family(model.IPv4).ServicePorts() {
			got := slices.Clone(want)
			for i, at := range keepSlots(have, sp, model.Cluster) {
				got[i] = sp.Endpoints[at].Addr
			}
			if plain := plainSlots(have, want); !slices.Equal(plain, got) {
				t.Fatalf("seed %d: from %v to %v: %v, want %v", seed, have, want, got, plain)
			}
		}
	}
}

// Of whatever number of endpoints a chain is for, each gets its share.
func TestDrawsAreFair(t *testing.T) {
	for n := 1; n <= 5000; n += 1 + n/100 {
		of := capacityFor(n, model.Cluster, model.Random)
		draws := of.draws()
		if of.lo > n || of.hi < n || len(draws) > maxDraws || draws[0] != of.hi || draws[len(draws)-1] != max(of.lo, 1) {
			t.Fatalf("%d endpoints: draws %v for %v", n, draws, of)
		}
		tolerance := 0.001
		if n <= 16 {
			tolerance = 1e-9
		}
		shares, left := make([]float64, n), 1.0
		for _, mod := range append(draws, 1) {
			found := min(n, mod)
			for i := range found {
				shares[i] += left / float64(mod)
			}
			left *= 1 - float64(found)/float64(mod)
		}
		for i, share := range shares {
			if off := share*float64(n) - 1; math.Abs(off) > tolerance {
				t.Errorf("%d endpoints: the share of %d is off by %.5f", n, i, off)
				break
			}
		}
	}
}

// What grows and shrinks within a capacity keeps its chain, whose neighbours take over where it ends.
func TestCapacitiesFollowOneAnother(t *testing.T) {
	for _, l := range model.TrafficPolicies {
		for n := range 3000 {
			of, next := capacityFor(n, l, model.Random), capacityFor(n+1, l, model.Random)
			if of != next && (of.hi != n || next.lo != n+1) {
				t.Errorf("%d endpoints: %v, then %v", n, of, next)
			}
			if exact := (capacity{n, n}); capacityFor(n, l, model.Maglev) != exact || capacityFor(n, l, model.MaglevPort) != exact {
				t.Errorf("%d endpoints: lookup tables must know the number", n)
			}
		}
	}
}
