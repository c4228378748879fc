package daemon

import (
	"log/slog"
	"math"
	"os"
	"runtime"
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
	switch limit, err := memlimit.Set(memlimit.WithRatio(0.85)); {
	case err != nil:
		log.Warn("memory limit of the control group unknown", slog.Any("err", err))
	case limit != math.MaxInt64:
		log.Info("memory limit of the heap", slog.Int64("bytes", limit))
	}
}

// Until everything is programmed once, most allocations are answers of the API server, garbage as soon as they are
// decoded, and the process would keep a large heap: so GOGC is less until then. It is a percentage of the heap and the
// ballast, which nobody touches and which takes no memory: while the heap is small, garbage is collected less often.
const startGCPercent, startBallast = 30, 28 << 20

// newStartThrift returns an observer that returns the memory that only the start needed. It does nothing if the
// environment sets GOGC or GOMEMLIMIT.
func newStartThrift() observer {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return func(reconcile.Round) {}
	}
	percent, limit, ballast := debug.SetGCPercent(startGCPercent), debug.SetMemoryLimit(-1), make([]byte, startBallast)
	debug.SetMemoryLimit(min(limit, math.MaxInt64-startBallast) + startBallast)
	end := sync.OnceFunc(func() {
		runtime.KeepAlive(ballast)
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
		go debug.FreeOSMemory() // takes a while, and nothing depends on it
	})
	return func(r reconcile.Round) {
		if model.IsProgrammed(r.Err) {
			end()
		}
	}
}
