package main

import (
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/vmapd/vmapd/sync/reconcile"
)

// startGCPercent is GOGC until everything is programmed once. Most allocations until then are
// answers of the API server, which are garbage as soon as they are decoded: a larger heap would
// hardly save time, and the process would keep it.
const startGCPercent = 40

// startThrift is an observer that returns the memory that only the start needed.
type startThrift struct{ end func() }

// newStartThrift returns nil if the environment sets GOGC or GOMEMLIMIT.
func newStartThrift() *startThrift {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return nil
	}
	before := debug.SetGCPercent(startGCPercent)
	return &startThrift{end: sync.OnceFunc(func() {
		debug.SetGCPercent(before)
		go debug.FreeOSMemory() // takes a while, and nothing depends on it
	})}
}

// Queued implements reconcile.Observer.
func (*startThrift) Queued(time.Time) {}

// Done implements reconcile.Observer.
func (t *startThrift) Done(r reconcile.Round) {
	if r.Err == nil {
		t.end()
	}
}
