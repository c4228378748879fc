package main

import (
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/labtest"
	"github.com/vmapd/vmapd/model/nettest"
)

func TestMain(m *testing.M) { nettest.Main(m) }

// Of the quick faults, none costs a client more than the kernel's design asks for, and vmapd recovers from each. A table
// that is deleted while vmapd is away does cost connections: that the counters count them is shown by it.
func TestQuickFaults(t *testing.T) {
	nettest.Need(t)
	o := &options{vmapd: labtest.Vmapd(t), lasts: time.Second / 2, patience: 5 * time.Minute, settles: time.Second / 4}
	o.within, o.rate = 10*time.Second, 20 // a busy machine stalls for seconds, and loses nothing
	for _, f := range faults() {
		if !f.quick {
			continue
		}
		for _, backend := range f.on() {
			t.Run(f.name+"/"+backend, func(t *testing.T) {
				t.Parallel() // recovering is most of the time
				r, err := play(t.Context(), o, f, backend)
				if err != nil {
					t.Fatal(err)
				}
				switch {
				case r.sent == 0 || r.kept == 0:
					t.Errorf("there was no traffic: %+v", r)
				case r.wrong > 0 || f.loses == "" && r.bad():
					t.Errorf("%d of %d lost, %d of %d broken, %d wrong; the first: %v",
						r.lost, r.sent, r.broken, r.kept, r.wrong, r.first)
				case f.loses != "" && !r.bad():
					t.Error("nothing was lost, which can't be: are losses counted?")
				}
				t.Logf("%d new, %d lost, %d broken; recovered within %v", r.sent, r.lost, r.broken, r.recovered)
			})
		}
	}
}
