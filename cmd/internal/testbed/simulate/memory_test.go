package simulate

import (
	"io"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/vmapd/vmapd/model/modeltest"
)

// One daemon lives on while objects come and go, of which there are never many, and messages fail. What it keeps when all is at rest
// must not grow: twice as long a life needs no more.
func TestMemoryIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	const steps, least = 3000, 20 // Settles in each half
	synctest.Test(t, func(t *testing.T) {
		w, err := newWorld(Node{Config: modeltest.Config()}, synctest.Wait, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		defer w.end()
		var live []uint64
		for _, s := range NewLife(1, steps).Steps {
			if s.Kind == Kill || s.Kind == Restart {
				continue
			}
			w.play(s)
			if s.Kind == Settle {
				w.server.events = map[string][]event{} // all have arrived
				live = append(live, liveHeap())
			}
		}
		if err := w.failed(); err != nil {
			t.Fatal(err)
		}
		half := len(live) / 2
		if half < least {
			t.Fatalf("all was at rest %d times", len(live))
		}
		first, second := slices.Max(live[:half]), slices.Max(live[half:])
		t.Logf("live heap at rest, in kB: %d at most, then %d at most", first>>10, second>>10)
		if second > first+first/4 {
			t.Errorf("the live heap grows from %d to %d bytes", first, second)
		}
	})
}

func liveHeap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
