package kernel

import (
	"errors"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/nftfake"
)

// passing are the faults that say nothing about what a kernel has.
var passing = []nftfake.Fault{nftfake.NoBuffers, nftfake.NoMemory, nftfake.Interrupted, nftfake.LostAnswers}

// opened counts the messages of Open with a healthy kernel.
func opened(t *testing.T, o Options, k *nftfake.Kernel) (total int) {
	t.Helper()
	k.Fail(func(r nftfake.Request) nftfake.Fault { total = r.N; return nftfake.NoFault })
	o.Dial = fakeDialer(k)
	b, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	return total
}

// mustHaveAll checks that nothing is taken for missing.
func mustHaveAll(t *testing.T, b *Backend) {
	t.Helper()
	if len(b.families) != len(model.Families) || !b.Owned() {
		t.Fatalf("%d families, owned: %v; want all that this kernel has", len(b.families), b.Owned())
	}
}

// Whichever message of the probe fails for want of memory or room: one fault does no harm, and one that
// lasts is an error that no feature gets the blame for. The next Open finds all.
func TestAFaultOfTheProbeIsNoMissingFeature(t *testing.T) {
	k := &nftfake.Kernel{}
	total := opened(t, Options{Counters: true}, k)
	for _, fault := range passing {
		for n := 1; n <= total; n++ {
			k.FailAt(n, fault)
			b, err := Open(Options{Dial: fakeDialer(k), Counters: true})
			if err != nil {
				t.Fatalf("fault %d of message %d of %d: %v", fault, n, total, err)
			}
			mustHaveAll(t, b)
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			if n == total { // it asks for a table that may have no owner, which Apply finds out as well
				continue
			}
			k.Fail(func(r nftfake.Request) nftfake.Fault {
				if r.N >= n {
					return fault
				}
				return nftfake.NoFault
			})
			var lacks *UnsupportedError
			if _, err = Open(Options{Dial: fakeDialer(k), Counters: true}); err == nil || errors.As(err, &lacks) {
				t.Fatalf("fault %d of all messages from %d of %d on: got %v, want an error that names no feature", fault, n, total, err)
			}
		}
	}
	k.Fail(nil)
	mustHaveAll(t, openFake(t, k))
}
