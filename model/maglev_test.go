package model

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

// somePods returns n pods, sorted.
func somePods(r *rand.Rand, n int) []netip.AddrPort {
	var list []netip.AddrPort
	for len(list) < n {
		list = joined(r, list)
	}
	return list
}

// joined returns a list with one more pod.
func joined(r *rand.Rand, list []netip.AddrPort) []netip.AddrPort {
	for {
		pod := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(r.IntN(4)), byte(r.IntN(256)), byte(r.IntN(256))}), 8080)
		if i, found := slices.BinarySearchFunc(list, pod, netip.AddrPort.Compare); !found {
			return slices.Insert(slices.Clone(list), i, pod)
		}
	}
}

// movement is what a change of the endpoints did to the clients of those who stay.
type movement struct {
	moved   float64 // in 1/n of all, n being the greater number of endpoints
	busiest float64 // in means
}

func compareTables(before, after []netip.AddrPort, size int) movement {
	was, is := lookupTable(before, size), lookupTable(after, size)
	loads := make([]int, len(after))
	moved := 0
	for i, e := range is {
		loads[e]++
		from := before[was[i]]
		if _, stays := slices.BinarySearchFunc(after, from, netip.AddrPort.Compare); stays && from != after[e] {
			moved++
		}
	}
	perEndpoint := float64(size) / float64(len(after))
	return movement{float64(moved*max(len(before), len(after))) / float64(size), float64(slices.Max(loads)) / perEndpoint}
}

func randomChange(r *rand.Rand, list []netip.AddrPort, least, most int) []netip.AddrPort {
	if len(list) < most && (len(list) <= least || r.IntN(2) == 0) {
		return joined(r, list)
	}
	i := r.IntN(len(list))
	return slices.Delete(slices.Clone(list), i, i+1)
}

// The limits that DefaultTableSize promises hold for every change of many sequences.
func TestFewClientsMove(t *testing.T) {
	const sequences, changes = 1000, 4
	var most movement
	for k := range sequences {
		r := rand.New(rand.NewPCG(uint64(k), 7))
		list := somePods(r, 2+k%48)
		for range changes {
			next := randomChange(r, list, 2, 50)
			m := compareTables(list, next, DefaultTableSize)
			if m.moved > 1.5 || m.busiest > 1.05 {
				t.Errorf("sequence %d: from %d to %d endpoints, %.2f/n of the clients moved, and the busiest endpoint has %.3f of the mean", k, len(list), len(next), m.moved, m.busiest)
			}
			most.moved, most.busiest = max(most.moved, m.moved), max(most.busiest, m.busiest)
			list = next
		}
	}
	t.Logf("at most %.2f/n of the clients moved; the busiest endpoint had %.3f of the mean", most.moved, most.busiest)
}

func FuzzLookupTable(f *testing.F) {
	f.Add(uint64(1), uint16(3), uint16(61))
	f.Add(uint64(2), uint16(1000), uint16(4093))
	f.Add(uint64(3), uint16(200), uint16(64))
	for n := range uint16(100) { // from 2 endpoints to 497
		f.Add(uint64(n), 5*n, 37*n)
	}
	f.Fuzz(func(t *testing.T, seed uint64, n, size uint16) {
		count, slots := 2+int(n)%500, MinTableSize+int(size)%2000
		slots = tableSize(slots, count)
		r := rand.New(rand.NewPCG(seed, 1))
		list := somePods(r, count)
		table := lookupTable(list, slots)
		loads := make([]int, count)
		for _, e := range table {
			loads[e]++ // panics if it is none
		}
		most := max((slots+count-1)/count, slots*maxShare/100/count)
		if got := slices.Max(loads); got > most {
			t.Errorf("%d of %d slots for one of %d endpoints, want %d at most", got, slots, count, most)
		}
		if got := slices.Min(loads); got == 0 {
			t.Errorf("an endpoint of %d has none of %d slots", count, slots)
		}
		for range 8 {
			a := netip.AddrFrom4([4]byte{byte(r.Uint32()), 1, 2, byte(r.Uint32())})
			if i := TableSlot(Maglev, a, 0, slots); i < 0 || i >= slots {
				t.Errorf("slot %d of %d", i, slots)
			}
		}
	})
}

// The kernel reads all of an IPv4 address and port byte by byte, so that processors of both byte orders draw
// the same slot (linux/jhash.h). Of an IPv6 address it reads 12 bytes as words.
func TestByteOrdersOfTheHash(t *testing.T) {
	for _, tt := range []struct {
		client string
		same   bool
	}{{"10.0.0.2", true}, {"203.0.113.9", true}, {"2001:db8:203::9", false}} {
		for _, port := range [][]byte{nil, {0x12, 0x34, 0, 0}} {
			key := append(netip.MustParseAddr(tt.client).AsSlice(), port...)
			little, big := jhash(key, HashSeed, binary.LittleEndian), jhash(key, HashSeed, binary.BigEndian)
			if (little == big) != tt.same {
				t.Errorf("%s, port %x: %#x and %#x", tt.client, port, little, big)
			}
		}
	}
}
