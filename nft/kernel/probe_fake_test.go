package kernel

import (
	"errors"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/nftfake"
)

// passing are the faults that say nothing about what a kernel has.
var passing = []nftfake.Fault{nftfake.NoBuffers, nftfake.NoMemory, nftfake.Interrupted, nftfake.LostAnswers}

// mustHaveAll opens a backend of a kernel, and checks that nothing is taken for missing.
func mustHaveAll(t *testing.T, k *nftfake.Kernel) {
	t.Helper()
	b, err := Open(Options{Dial: fakeDialer(k), Counters: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(b.families) != len(model.Families) || !b.Owned() {
		t.Fatalf("%d families, owned: %v; want all that this kernel has", len(b.families), b.Owned())
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

// Whichever message of the probe fails for want of memory or room, that is an error that no feature gets the blame for.
// The next Open finds all.
func TestAFaultOfTheProbeIsNoMissingFeature(t *testing.T) {
	k, total := &nftfake.Kernel{}, 0
	k.Fail(func(r nftfake.Request) nftfake.Fault { total = r.N; return nftfake.NoFault })
	mustHaveAll(t, k)
	for _, fault := range passing {
		for n := 1; n <= total; n++ {
			k.Fail(failIf(fault, func(r nftfake.Request) bool { return r.N == n }))
			var lacks *UnsupportedError
			if _, err := Open(Options{Dial: fakeDialer(k), Counters: true}); err == nil || errors.As(err, &lacks) {
				t.Fatalf("fault %d of message %d of %d: got %v, want an error that names no feature", fault, n, total, err)
			}
		}
	}
	k.Fail(nil)
	mustHaveAll(t, k)
}
