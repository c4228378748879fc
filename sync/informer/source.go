package informer

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/vmapd/vmapd/sync/kube/client"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// retryOptional is after how long, at least, a kind is tried again that the server
// doesn't have: it may be upgraded. There are thousands of nodes, so not often.
const retryOptional = 10 * time.Minute

// retry is how long to wait before everything is read again, after an error: as client-go's
// reflectors do. After retryReset without one, it begins anew.
var retry = wait.Backoff{Duration: 800 * time.Millisecond, Factor: 2, Jitter: 1, Cap: 30 * time.Second, Steps: 38}

const retryReset = 2 * time.Minute

// Source follows an API server and writes what concerns this node into a
// [reconcile.State].
type Source struct {
	Client   *client.Client
	NodeName string // of the only Node to read
	Log      *slog.Logger
}

// Run calls Complete once the initial lists of Services, EndpointSlices and the
// Node, and of ServiceCIDRs if the server has them, are in the state. It then writes
// each change until ctx ends, and returns nil. Errors of the server are logged once
// per kind, until it is watched again; they change nothing in the state.
func (s *Source) Run(ctx context.Context, state *reconcile.State) error {
	if s.NodeName == "" {
		return errors.New("follow the API server: no node name")
	}
	ctx = klog.NewContext(ctx, logr.FromSlogHandler(demoted{s.Log.Handler()}))
	start := time.Now()

	var all, initial sync.WaitGroup
	for _, r := range resources(s.Client, s.NodeName) {
		f := &follower{resource: r, state: state, log: s.Log.With(slog.String("resource", r.name))}
		initial.Add(1)
		delivered := sync.OnceFunc(initial.Done)
		all.Go(func() { f.run(ctx, delivered) })
	}
	complete := make(chan struct{})
	all.Go(func() {
		initial.Wait()
		close(complete)
	})
	select {
	case <-complete:
		if ctx.Err() == nil {
			state.Complete()
			s.Log.LogAttrs(ctx, slog.LevelInfo, "initial lists read; watching", slog.Duration("took", time.Since(start)))
		}
	case <-ctx.Done():
	}
	all.Wait()
	return nil
}

// follower keeps one kind of objects up to date in the state.
type follower struct {
	*resource
	state *reconcile.State
	log   *slog.Logger
}

// run follows until ctx ends. It calls delivered when the initial list is in the
// state, or will not come, or ctx ended.
func (f *follower) run(ctx context.Context, delivered func()) {
	defer delivered()
	for {
		h := newHealth(f.log, f.optional)
		f.inform(ctx, h, delivered)
		if ctx.Err() != nil {
			return
		}
		// Only what is optional ends before ctx does.
		delivered()
		select {
		case <-ctx.Done():
			return
		case <-time.After(retryOptional + rand.N(retryOptional)):
		}
	}
}

// inform follows until ctx ends or h finds that the server doesn't have this kind.
func (f *follower) inform(ctx context.Context, h *health, delivered func()) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	h.giveUp = cancel
	into := newStore(f.resource, f.state, func() {
		h.synced()
		delivered()
	})
	logger := klog.FromContext(ctx)
	reflector := cache.NewReflectorWithOptions(
		h.observe(f.resource, into), new(object), into,
		cache.ReflectorOptions{Name: f.name, TypeDescription: f.name, Logger: &logger},
	)
	// The reflector's own loop would log errors. They are seen by h, and more of them than
	// come here.
	again := retry.DelayWithReset(clock.RealClock{}, retryReset)
	_ = again.Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		_ = reflector.ListAndWatchWithContext(ctx)
		return false, nil
	})
}

// demoted is a handler for client-go's own log: what it calls information is for
// debugging here.
type demoted struct{ slog.Handler }

func (d demoted) level(l slog.Level) slog.Level {
	if l < slog.LevelError {
		return min(l, slog.LevelDebug)
	}
	return l
}

func (d demoted) Enabled(ctx context.Context, l slog.Level) bool {
	return d.Handler.Enabled(ctx, d.level(l))
}

func (d demoted) Handle(ctx context.Context, r slog.Record) error {
	r.Level = d.level(r.Level)
	return d.Handler.Handle(ctx, r)
}

func (d demoted) WithAttrs(attrs []slog.Attr) slog.Handler {
	return demoted{d.Handler.WithAttrs(attrs)}
}

func (d demoted) WithGroup(name string) slog.Handler { return demoted{d.Handler.WithGroup(name)} }
