package kernel

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/nft/nftfake"
)

// Counts are read over a connection that lasts, also beyond an error: what is left of a list is not taken for a part of
// the next one.
func TestCountsAreReadOverOneConnection(t *testing.T) {
	k := &nftfake.Kernel{}
	dials := 0
	b := openAs(t, Options{Counters: true, Dial: func() (Socket, error) {
		dials++
		return k.Dial(), nil
	}})
	apply(t, b, exampleBuilder().Snapshot())
	want, err := b.Connections(t.Context())
	if err != nil || len(want) == 0 {
		t.Fatalf("%d counts, %v", len(want), err)
	}
	mustRead := func(after string) {
		t.Helper()
		got, err := b.Connections(t.Context())
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("after %s: %v (-want +got):\n%s", after, err, diff)
		}
	}
	opened := dials
	for range 3 {
		mustRead("no failure")
	}
	if dials != opened {
		t.Errorf("%d connections were opened for three readings, want none", dials-opened)
	}
	for _, fault := range []nftfake.Fault{nftfake.NoBuffers, nftfake.Busy, nftfake.LostAnswers} {
		k.Fail(failing(unix.NFT_MSG_GETSETELEM, fault))
		if _, err := b.Connections(t.Context()); err == nil {
			t.Errorf("%v: no error", fault)
		}
		k.Fail(nil)
		mustRead("a failure")
	}
}
