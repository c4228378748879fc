package main

import (
	"context"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/memlimit"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// limitMemory makes the runtime respect the memory limit of the control group.
func limitMemory(ctx context.Context, log *slog.Logger) {
	switch limit, err := memlimit.Apply(); {
	case err != nil:
		log.LogAttrs(ctx, slog.LevelWarn, "memory limit of the control group unknown", slog.Any("err", err))
	case limit != nil:
		log.LogAttrs(ctx, slog.LevelInfo, "memory limit of the control group", slog.String("file", limit.File),
			slog.Int64("bytes", limit.Bytes), slog.Int64("for_the_heap", limit.Runtime()))
	}
}

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

// Done implements reconcile.Observer.
func (t *startThrift) Done(r reconcile.Round) {
	if model.IsProgrammed(r.Err) {
		t.end()
	}
}
