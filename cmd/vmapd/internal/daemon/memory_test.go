package daemon

import (
	"errors"
	"runtime/debug"
	"testing"

	"github.com/vmapd/vmapd/sync/reconcile"
)

func TestGarbageIsCollectedMoreOftenUntilTheFirstRound(t *testing.T) {
	percent := func() int {
		now := debug.SetGCPercent(100)
		debug.SetGCPercent(now)
		return now
	}
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		t.Setenv(name, "")
	}
	limit := func() int64 { return debug.SetMemoryLimit(-1) }
	before, most := percent(), limit()
	defer debug.SetMemoryLimit(most)
	const ofGroup = 1 << 30
	debug.SetMemoryLimit(ofGroup)
	thrift := newStartThrift()
	defer debug.SetGCPercent(before)
	thrift.Done(reconcile.Round{Err: errors.New("no")})
	if got := percent(); got != startGCPercent {
		t.Errorf("%d until a round goes well, want %d", got, startGCPercent)
	}
	if got := limit() - startBallast; got != ofGroup {
		t.Errorf("memory limit without the ballast %d until a round goes well, want %d", got, ofGroup)
	}
	thrift.Done(reconcile.Round{})
	if got := limit(); got != ofGroup {
		t.Errorf("memory limit %d afterwards, want %d as before", got, ofGroup)
	}
	if got := percent(); got != before {
		t.Errorf("%d afterwards, want %d as before", got, before)
	}
	debug.SetGCPercent(77)
	thrift.Done(reconcile.Round{})
	if got := percent(); got != 77 {
		t.Errorf("%d after another round, want 77: only the first counts", got)
	}
	t.Setenv("GOGC", "200")
	newStartThrift()
	if got := percent(); got != 77 {
		t.Errorf("%d, want 77: the environment has priority", got)
	}
}
