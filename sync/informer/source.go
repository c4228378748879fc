package informer

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/vmapd/vmapd/sync/kube/client"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// retryOptional is the least time until an optional kind is tried again: the server may be
// upgraded. Thousands of nodes may ask, so the time is long.
const retryOptional = 10 * time.Minute

// Source follows an API server and writes the objects for this node into a
// [reconcile.State].
type Source struct {
	Client   *client.Client
	NodeName string // of the only Node to read
	Log      *slog.Logger
	// Plain reports whether lists are not to be streamed. It may be nil, and is called before each list.
	Plain func() bool

	remindEvery time.Duration // 0: the default
	quiet       time.Duration // 0: slow

	word lastWord

	mu      sync.Mutex
	failing map[string]Failure
	heard   map[string]*atomic.Int64 // nanoseconds, by the kind's name
	unread  map[string]bool
}

// Unread returns the kinds whose initial list has not been read yet: of these, nothing is known. It may be
// called at any time.
func (s *Source) Unread() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.unread))
}

// reading notes that the initial list of a kind is awaited. The function that it returns ends that.
func (s *Source) reading(name string) (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unread == nil {
		s.unread = map[string]bool{}
	}
	s.unread[name] = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.unread, name)
	}
}

// Heard returns when the API server last sent something about each kind that made sense, by the kinds'
// names. A kind of which nothing has been received is missing. It may be called at any time.
func (s *Source) Heard() map[string]time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string]time.Time{}
	for name, at := range s.heard {
		if at := at.Load(); at != 0 {
			all[name] = time.Unix(0, at)
		}
	}
	return all
}

// hears returns where the time of the last word about a kind is kept.
func (s *Source) hears(name string) *atomic.Int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.heard == nil {
		s.heard = map[string]*atomic.Int64{}
	}
	s.heard[name] = new(atomic.Int64)
	return s.heard[name]
}

// Failing returns the kinds of objects that can't be read now, by their names. It may be
// called at any time.
func (s *Source) Failing() []Failure {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.failing), func(a, b Failure) int { return cmp.Compare(a.Resource, b.Resource) })
}

func (s *Source) report(f Failure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.Since.IsZero() {
		delete(s.failing, f.Resource)
		return
	}
	if s.failing == nil {
		s.failing = map[string]Failure{}
	}
	s.failing[f.Resource] = f
}

// Run calls Complete when the initial lists of Services, EndpointSlices, the Node and, if the
// server has them, ServiceCIDRs are in the state. It then writes each change until ctx ends,
// and returns nil. Errors of the server do not change the state. For each kind, the log has the
// first error, each one with another cause, every five minutes the last one, and the end.
func (s *Source) Run(ctx context.Context, state *reconcile.State) error {
	if s.NodeName == "" {
		return errors.New("follow the API server: no node name")
	}
	ctx = withWord(ctx, &s.word)
	ctx = klog.NewContext(ctx, logr.FromSlogHandler(demoted{s.Log.Handler()}))
	start := time.Now()

	var all, initial sync.WaitGroup
	kinds := resources(s.Client, s.NodeName)
	node := &witness{resource: kinds[slices.IndexFunc(kinds, func(r *resource) bool { return r.witness })]}
	for _, r := range kinds {
		f := &follower{
			resource: r, state: state, log: s.Log.With(slog.String("resource", r.name)),
			report: s.report, heard: s.hears(r.name), witness: node, remindEvery: cmp.Or(s.remindEvery, remindEvery),
			plain: s.Plain, quiet: cmp.Or(s.quiet, slow),
		}
		if f.plain == nil {
			f.plain = func() bool { return false }
		}
		initial.Add(1)
		read := s.reading(r.name)
		delivered := sync.OnceFunc(func() {
			read()
			initial.Done()
		})
		all.Go(func() { f.run(ctx, delivered) })
	}
	initial.Wait()
	if ctx.Err() == nil {
		state.Complete()
		s.Log.LogAttrs(ctx, slog.LevelInfo, "initial lists read; watching", slog.Duration("took", time.Since(start)))
	}
	all.Wait()
	return nil
}

// follower keeps one kind of objects up to date in the state.
type follower struct {
	*resource
	state       *reconcile.State
	log         *slog.Logger
	report      func(Failure)
	heard       *atomic.Int64
	witness     *witness
	remindEvery time.Duration
	plain       func() bool
	quiet       time.Duration
}

// run follows until ctx ends. It calls delivered when the initial list is in the state or
// unavailable, or when ctx ends.
func (f *follower) run(ctx context.Context, delivered func()) {
	defer delivered()
	for {
		f.inform(ctx, delivered)
		if ctx.Err() != nil {
			return
		}
		// Only an optional kind ends before ctx does.
		delivered()
		select {
		case <-ctx.Done():
			return
		case <-time.After(retryOptional + rand.N(retryOptional)):
		}
	}
}

// inform follows until ctx ends or the server turns out not to have this kind.
func (f *follower) inform(ctx context.Context, delivered func()) {
	ctx, cancel := context.WithCancel(ctx)
	var reminder sync.WaitGroup
	defer func() {
		cancel()
		reminder.Wait()
	}()
	h := &health{
		log: f.log, of: f.resource, giveUp: cancel, report: f.report, heard: f.heard, witness: f.witness,
		pace: rate.NewLimiter(rate.Every(watchEvery), watchBurst), quiet: f.quiet,
	}
	reminder.Go(func() { h.remind(ctx, f.remindEvery) })
	into := newStore(f.resource, f.state, func() {
		h.delivered.Store(true)
		delivered()
	})
	if f.resource.witness {
		into.witness = f.witness
	}
	logger := klog.FromContext(ctx)
	reflector := cache.NewReflectorWithOptions(
		h.observe(f.resource, into, f.plain), new(object), into,
		cache.ReflectorOptions{Name: f.name, TypeDescription: f.name, Logger: &logger, Backoff: &soon},
	)
	// The reflector's own loop would log errors. h logs them, and others that do not come
	// here.
	pauses := newPauses()
	for ctx.Err() == nil {
		start := time.Now()
		_ = reflector.ListAndWatchWithContext(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(pauses.next(h.lastFailure(), time.Since(start))):
		}
	}
}

// demoted is a handler for client-go's own log, with its Info messages at Debug level.
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
