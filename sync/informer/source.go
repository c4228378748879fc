package informer

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/vmapd/vmapd/sync/kube/client"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// Source follows an API server and writes the objects for this node into a
// [reconcile.State].
type Source struct {
	Client   *client.Client
	NodeName string // of the only Node to read
	Log      *slog.Logger
	Plain    bool // lists are not to be streamed

	quiet time.Duration // 0: slow

	mu        sync.Mutex
	followers []*follower // by the names of their kinds
}

// Unread returns the kinds whose initial list has not been read yet: of these, nothing is known. It may be
// called at any time.
func (s *Source) Unread() (kinds []string) {
	s.each(func(f *follower) {
		if !f.known && !f.lacking {
			kinds = append(kinds, f.name)
		}
	})
	return kinds
}

// Heard returns when the API server last sent something about each kind that made sense, by the kinds'
// names. A kind of which nothing has been received is missing. It may be called at any time.
func (s *Source) Heard() map[string]time.Time {
	all := map[string]time.Time{}
	s.each(func(f *follower) {
		if !f.heard.IsZero() {
			all[f.name] = f.heard
		}
	})
	return all
}

// Failing returns the kinds of objects that can't be read now, by their names. It may be
// called at any time.
func (s *Source) Failing() (failures []Failure) {
	s.each(func(f *follower) {
		if !f.failure.Since.IsZero() {
			failures = append(failures, f.failure)
		}
	})
	return failures
}

func (s *Source) each(do func(*follower)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.followers {
		f.mu.Lock()
		do(f)
		f.mu.Unlock()
	}
}

// Debug returns a log for client-go. All but errors is at Debug level.
func Debug(log *slog.Logger) klog.Logger {
	return logr.FromSlogHandler(log.Handler()).V(-int(slog.LevelDebug))
}

// Run calls Complete when the initial lists of Services, EndpointSlices, the Node and, if the
// server has them, ServiceCIDRs are in the state. It then writes each change until ctx ends,
// and returns nil. Errors of the server do not change the state.
func (s *Source) Run(ctx context.Context, state *reconcile.State) error {
	if s.NodeName == "" {
		return errors.New("follow the API server: no node name")
	}
	ctx = klog.NewContext(ctx, Debug(s.Log))
	start := time.Now()

	var all, initial sync.WaitGroup
	s.mu.Lock()
	for _, r := range resources(s.Client, s.NodeName) {
		initial.Add(1)
		f := newFollower(r, s, state, sync.OnceFunc(initial.Done))
		s.followers = append(s.followers, f)
		all.Go(func() { f.run(ctx) })
	}
	slices.SortFunc(s.followers, func(a, b *follower) int { return cmp.Compare(a.name, b.name) })
	s.mu.Unlock()
	initial.Wait()
	if ctx.Err() == nil {
		state.Complete()
		s.Log.Info("initial lists read; watching", slog.Duration("took", time.Since(start)))
	}
	all.Wait()
	return nil
}
