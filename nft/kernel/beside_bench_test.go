package kernel

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/others"
)

// BenchmarkChangesBesideReaders changes a Service while something else reads every 10 ms, as the
// looks for leftovers and the scrapes of counters do much more rarely. With "closing", each reading
// has a connection of its own, whose end waits for the kernel. The figures are of changes.
func BenchmarkChangesBesideReaders(b *testing.B) {
	look := func(context.Context, *Backend) (err error) {
		for _, f := range model.Families {
			_, listErr := others.TableNames(f)
			err = errors.Join(err, listErr)
		}
		return err
	}
	for _, tt := range []struct {
		name string
		read func(ctx context.Context, backend *Backend) error
	}{
		{"alone", nil},
		{"looks-closing", look},
		{"scrapes", func(ctx context.Context, backend *Backend) error {
			_, err := backend.Connections(ctx)
			return err
		}},
		{"scrapes-closing", func(ctx context.Context, backend *Backend) error {
			_, err := backend.Connections(ctx)
			backend.counts.close()
			return err
		}},
	} {
		b.Run(tt.name, func(b *testing.B) {
			s := newBesides(b, 0, Options{Counters: true})
			ctx, stop := context.WithCancel(b.Context())
			var reading sync.WaitGroup
			defer reading.Wait()
			defer stop()
			if tt.read != nil {
				reading.Go(func() { s.n.readOften(ctx, b, func() error { return tt.read(ctx, s.backend) }) })
			}
			var took []time.Duration
			for b.Loop() {
				took = append(took, s.changeOther(b))
			}
			slices.Sort(took)
			for name, at := range map[string]int{"p50": len(took) / 2, "p99": len(took) * 99 / 100, "max": len(took) - 1} {
				b.ReportMetric(float64(took[at].Microseconds())/1000, "ms/"+name)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// readOften reads in the namespace every 10 ms until ctx ends.
func (n netns) readOften(ctx context.Context, b *testing.B, read func() error) {
	b.Helper()
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	if err := unix.Setns(n.fd(), unix.CLONE_NEWNET); err != nil {
		b.Error(err)
		return
	}
	for tick := time.NewTicker(10 * time.Millisecond); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
		}
		if err := read(); err != nil && ctx.Err() == nil {
			b.Error(err)
			return
		}
	}
}
