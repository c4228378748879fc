package nft_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/nft"
)

func TestElementsAreThoseThatWereAdded(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	random := func(n int) string { return strings.Repeat(string(rune('a'+r.IntN(26))), r.IntN(n+1)) }
	for _, grown := range []bool{false, true} {
		t.Run(fmt.Sprintf("room is made before: %v", grown), func(t *testing.T) {
			var got nft.Elements
			if grown {
				got.Grow(100, 10)
			}
			var want []nft.Element
			for i := range 2000 {
				e := nft.Element{Key: fmt.Sprint(r.IntN(1000)), End: random(28), Data: random(20), Comment: random(255)}
				if i%2 == 0 {
					e.Verdict = nft.Verdict{Kind: nft.VerdictKind(r.IntN(5)), Chain: random(255)}
				}
				there := slices.ContainsFunc(want, func(o nft.Element) bool { return o.Key == e.Key })
				if err := got.Add(e); err != nil {
					t.Fatal(err)
				}
				if !there {
					want = append(want, e)
				}
			}
			equal(t, "number of elements", len(want), got.Len())
			equal(t, "elements", want, slices.Collect(got.All()))
			for _, e := range want {
				if found, ok := got.Get(e.Key); !ok || found != e {
					t.Errorf("key %s: got %v, %v", e.Key, found, ok)
				}
			}
			for _, key := range []string{"", "1000", "01", want[0].Key + "0x"} {
				if e, ok := got.Get(key); ok {
					t.Errorf("key %q: got %v, which nobody added", key, e)
				}
			}
			for e := range got.All() {
				equal(t, "the first, when no more is asked for", want[0], e)
				break
			}
		})
	}
}

func TestElementsThatNobodyHas(t *testing.T) {
	for name, list := range map[string]*nft.Elements{"none": nil, "empty": {}} {
		if _, ok := list.Get("x"); ok || list.Len() != 0 || slices.Collect(list.All()) != nil {
			t.Errorf("%s: there is something", name)
		}
	}
}

func TestElementsTakeNothingThatTheKernelCannotHave(t *testing.T) {
	var list nft.Elements
	long := strings.Repeat("x", 256)
	for _, e := range []nft.Element{
		{Key: long},
		{Key: "k", End: long},
		{Key: "k", Data: long},
		{Key: "k", Comment: long},
		{Key: "k", Verdict: nft.Verdict{Kind: nft.Goto, Chain: long}},
	} {
		if err := list.Add(e); err == nil || err.Error() != "element with a part of 256 bytes" {
			t.Errorf("got error %v", err)
		}
	}
	if list.Len() != 0 {
		t.Errorf("%d elements were added all the same", list.Len())
	}
}
