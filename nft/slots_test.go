package nft

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/model"
)

func pods(numbers ...int) []netip.AddrPort {
	list := []netip.AddrPort{}
	for _, n := range numbers {
		list = append(list, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}), 80))
	}
	return list
}

func endpointsAt(addrs []netip.AddrPort) []model.Endpoint {
	list := []model.Endpoint{}
	for _, a := range addrs {
		list = append(list, model.Endpoint{Addr: a})
	}
	return list
}

func TestKeepSlots(t *testing.T) {
	for _, tt := range []struct {
		name             string
		have, want, keep []int
	}{
		{"from nothing: as they come", nil, []int{2, 3, 4}, []int{2, 3, 4}},
		{"the same", []int{4, 2, 3}, []int{2, 3, 4}, []int{4, 2, 3}},
		{"one more goes to the end, whatever its address", []int{4, 3}, []int{2, 3, 4}, []int{4, 3, 2}},
		{"the last one less", []int{2, 3, 4}, []int{2, 3}, []int{2, 3}},
		{"the first one less: the last fills the hole", []int{2, 3, 4}, []int{3, 4}, []int{4, 3}},
		{"one replaced", []int{2, 3, 4}, []int{2, 4, 5}, []int{2, 5, 4}},
		{"two less", []int{2, 3, 4, 5}, []int{4, 5}, []int{4, 5}},
		{"one more and one less", []int{2, 3, 4, 5}, []int{3, 4, 5, 6}, []int{6, 3, 4, 5}},
		{"all replaced by fewer", []int{2, 3, 4}, []int{5, 6}, []int{5, 6}},
		{"none left", []int{2, 3}, nil, nil},
		{"one of the old ones twice: the first counts", []int{2, 2, 3}, []int{2, 3, 4}, []int{2, 4, 3}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := keepSlots(pods(tt.have...), slices.Values(endpointsAt(pods(tt.want...))), len(tt.want))
			if diff := cmp.Diff(fmt.Sprint(pods(tt.keep...)), fmt.Sprint(got)); diff != "" {
				t.Errorf("slots (-want +got):\n%s", diff)
			}
		})
	}
}

func TestKeepSlotsMovesAsFewAsPossible(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 7))
		some := func() []int { return r.Perm(30)[:r.IntN(20)] }
		have, want := pods(some()...), pods(some()...)
		slices.SortFunc(want, netip.AddrPort.Compare)
		got := keepSlots(have, slices.Values(endpointsAt(want)), len(want))

		sorted := slices.SortedFunc(slices.Values(got), netip.AddrPort.Compare)
		if !slices.Equal(sorted, want) {
			t.Fatalf("seed %d: slots hold %v, want %v", seed, sorted, want)
		}
		// Who stays and can stay in place, does. So the slots written anew are as many as
		// there are new ones and ones from beyond the end.
		written, least := 0, len(want)
		for i, a := range got {
			if i >= len(have) || have[i] != a {
				written++
			}
		}
		for i, a := range have {
			if slices.Contains(want, a) && i < len(want) {
				least--
				if got[i] != a {
					t.Errorf("seed %d: %v was in slot %d and is not any more", seed, a, i)
				}
			}
		}
		if written != least {
			t.Errorf("seed %d: %d slots are written, want %d", seed, written, least)
		}
	}
}

func TestUnusedChainsAreKeptByNameOnly(t *testing.T) {
	for _, tt := range []struct {
		name string
		want bool
	}{
		{"endpoints-7", true},
		{"nodeport-endpoints-7", true},
		{"endpoints-07", false},
		{"endpoints-x", false},
		{"endpoints--7", false},
		{"strange-7", false},
		{"7", false},
		{"", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var c chosen
			if got := c.addName(tt.name); got != tt.want {
				t.Errorf("addName says %v, want %v", got, tt.want)
			}
		})
	}
}
