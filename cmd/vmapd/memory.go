package main

import (
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/vmapd/vmapd/sync/reconcile"
)

// startGCPercent is GOGC until everything is programmed once. Most of what is allocated until
// then are answers of the API server, which are garbage as soon as they are read: a larger
// heap would hardly save time, and the process would keep it.
const startGCPercent = 40

// startThrift is an observer that gives back what only the start needed.
type startThrift struct {
	once    sync.Once
	percent int // as it was before
}

// newStartThrift returns nil if somebody else decides, by the environment.
func newStartThrift() *startThrift {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return nil
	}
	return &startThrift{percent: debug.SetGCPercent(startGCPercent)}
}

// Queued implements reconcile.Observer.
func (*startThrift) Queued(time.Time) {}

// Done implements reconcile.Observer.
func (t *startThrift) Done(r reconcile.Round) {
	if r.Err != nil {
		return
	}
	t.once.Do(func() {
		debug.SetGCPercent(t.percent)
		go debug.FreeOSMemory() // takes a while, and nobody waits for it
	})
}
