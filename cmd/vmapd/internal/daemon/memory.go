package daemon

import (
	"log/slog"
	"math"
	"os"
	"runtime/debug"
	"sync"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// LimitMemory makes the runtime respect the memory limit of the control group, unless the environment sets GOMEMLIMIT.
// A part is for memory that the runtime does not know: the program itself, and that of the kernel for sockets and,
// since Linux 5.17, for nftables' elements. With 5,000 Services of 50 endpoints, the kernel's was 20 MB.
func LimitMemory(log *slog.Logger) {
	const heap = 0.85
	switch limit, err := memlimit.Set(memlimit.WithRatio(heap)); {
	case err != nil:
		log.Warn("memory limit of the control group unknown", slog.Any("err", err))
	case limit != math.MaxInt64:
		log.Info("memory limit of the heap", slog.Int64("bytes", limit))
	}
}

// startGCPercent is GOGC until everything is programmed once. Most allocations until then are answers of the API
// server, garbage as soon as they are decoded: a larger heap would hardly save time, and the process would keep it.
const startGCPercent = 40

// newStartThrift returns an observer that returns the memory that only the start needed. It is nil if the environment
// sets GOGC or GOMEMLIMIT.
func newStartThrift() observer {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return nil
	}
	before := debug.SetGCPercent(startGCPercent)
	end := sync.OnceFunc(func() {
		debug.SetGCPercent(before)
		go debug.FreeOSMemory() // takes a while, and nothing depends on it
	})
	return func(r reconcile.Round) {
		if model.IsProgrammed(r.Err) {
			end()
		}
	}
}
