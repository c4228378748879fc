package reconcile

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

func TestAFollowerThatHasEndedDoesNoWork(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		f := NewWorker(0)
		f.Wake()
		f.Run(ctx, func() time.Duration { t.Error("it works"); return -1 })
	}
}

func TestAFollowerWorksOnTheLatestState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewWorker(0)
		start := time.Now()
		type call struct {
			at    time.Duration
			state int
		}
		var calls []call
		stop := testaid.Run(t, func(ctx context.Context) {
			f.Run(ctx, func() time.Duration {
				f.With(func(state *int) { calls = append(calls, call{time.Since(start), *state}) })
				if len(calls) == 1 {
					time.Sleep(10 * time.Second) // Wake does not wait for it
				}
				if again := map[int]time.Duration{2: time.Minute, 4: 5 * time.Second}[len(calls)]; again > 0 {
					return again
				}
				return -1
			})
		})
		synctest.Wait()
		for i := range 3 {
			f.With(func(state *int) { *state = i + 1 })
			f.Wake()
			synctest.Wait()
		}
		for _, pause := range []time.Duration{30 * time.Second, time.Hour} { // before the minute ends, and long after
			time.Sleep(pause)
			f.Wake()
			synctest.Wait()
		}
		time.Sleep(time.Hour)
		stop()
		const last = time.Hour + 30*time.Second
		want := []call{{0, 1}, {10 * time.Second, 3}, {30 * time.Second, 3}, {last, 3}, {last + 5*time.Second, 3}}
		if !slices.Equal(calls, want) {
			t.Errorf("calls: want %v, got %v", want, calls)
		}
	})
}
