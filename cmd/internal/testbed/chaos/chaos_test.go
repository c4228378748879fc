package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vmapd/vmapd/model/nettest"
)

func TestMain(m *testing.M) { nettest.Main(m) }

// Of the quick faults, none costs a client more than the kernel's design asks for, and vmapd recovers from each. A table that
// is deleted while vmapd is away does cost connections: that the counters count them is shown by it.
func TestQuickFaults(t *testing.T) {
	nettest.Need(t)
	o := &options{vmapd: filepath.Join(t.TempDir(), "vmapd"), lasts: time.Second / 2, patience: 5 * time.Minute, settles: time.Second / 4}
	o.within, o.rate = 10*time.Second, 20 // a busy machine stalls for seconds, and loses nothing
	build := exec.CommandContext(t.Context(), "go", "build", "-o", o.vmapd, "github.com/vmapd/vmapd/cmd/vmapd")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, f := range faults() {
		if !f.quick {
			continue
		}
		for _, backend := range f.on() {
			t.Run(f.name+"/"+backend, func(t *testing.T) {
				r, err := play(t.Context(), o, f, backend)
				if err != nil {
					t.Fatal(err)
				}
				switch {
				case r.sent == 0 || r.kept != keptConns*len(paths()):
					t.Errorf("there was no traffic: %+v", r)
				case r.wrong > 0 || f.loses == "" && r.bad():
					t.Errorf("%d of %d lost, %d of %d broken, %d wrong; the first: %v", r.lost, r.sent, r.broken, r.kept, r.wrong, r.first)
				case f.loses != "" && !r.bad():
					t.Error("nothing was lost, which can't be: are losses counted?")
				}
				t.Logf("%d new, %d lost, %d broken; recovered within %v", r.sent, r.lost, r.broken, r.recovered)
			})
		}
	}
}

// Each fault has a name of its own and says what it does; losses have a reason.
func TestFaultsAreDescribed(t *testing.T) {
	names := map[string]bool{}
	quick := 0
	for _, f := range faults() {
		if names[f.name] || f.name == "" || f.does == "" || f.do == nil || strings.HasSuffix(f.does+f.loses, ".") {
			t.Errorf("fault %q: %q, %q", f.name, f.does, f.loses)
		}
		names[f.name] = true
		if f.quick {
			quick++
		}
	}
	if quick < 5 {
		t.Errorf("%d quick faults", quick)
	}
}
