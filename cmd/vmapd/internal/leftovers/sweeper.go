package leftovers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/sync/reconcile"
)

const (
	// RetryTime is the time between two attempts to remove leftovers.
	RetryTime = 30 * time.Second
	// LookInterval is the time between two looks for leftovers that came back.
	LookInterval = 5 * time.Second
	// settleTime is the time for which leftovers must be there again before anything is done: where
	// another proxy takes over the node, vmapd is about to end.
	settleTime = 10 * time.Second
	// restTime is settleTime for what comes back once more: two proxies must not delete each other's rules for ever.
	restTime = time.Hour
)

// Options of a Sweeper. Without Find and Remove, nothing may be examined or removed.
type Options struct {
	Find     func(all bool) (Found, error) // see [Finder.All]
	Remove   func() error
	Evidence *Evidence
	Log      *slog.Logger
	Event    func(text string)
}

// Sweeper removes what other backends and kube-proxy left on the node, and what they put there again.
type Sweeper struct {
	o       Options
	applied atomic.Bool

	mu    sync.Mutex    // held during removals and looks
	clean bool          // the last removal left nothing
	tried time.Time     // the last removal
	since time.Time     // since when something is back; zero: nothing is
	pause time.Duration // until that is removed
	said  reconcile.LastError

	left atomic.Pointer[Found] // as of the last look
}

// NewSweeper returns a sweeper that has not removed anything yet.
func NewSweeper(o Options) *Sweeper {
	if o.Find == nil {
		o.Find = func(bool) (Found, error) { return unexamined(), nil }
	}
	if o.Remove == nil {
		o.Remove = func() error { return nil }
	}
	return &Sweeper{o: o, pause: settleTime}
}

// Remaining returns what was there when somebody looked last.
func (s *Sweeper) Remaining() Found {
	if f := s.left.Load(); f != nil {
		return *f
	}
	return nil
}

// Counts returns Remaining, with a zero for everything that is not there; before the first look, all is unknown.
func (s *Sweeper) Counts() map[host.Leftover]int {
	counts := unexamined()
	if remaining := s.left.Load(); remaining != nil {
		for l := range counts {
			counts[l] = (*remaining)[l]
		}
	}
	return counts
}

// Applied is called after each Apply that succeeded. The first one removes leftovers: not before, so that connections
// always find rules. Leftovers that can't be removed are no failure of the backend, but a warning and an event.
func (s *Sweeper) Applied(ctx context.Context) {
	if s.applied.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.applied.Store(true)
	s.sweep(ctx)
}

func (s *Sweeper) sweep(ctx context.Context) {
	s.tried, s.since = time.Now(), time.Time{}
	before, _ := s.o.Find(true) // the same error comes after it
	failed := s.o.Remove()
	after, err := s.o.Find(true)
	s.left.Store(&after)
	if gone := before.without(after); gone.String() != "" {
		s.o.Log.Info("removed the rules of another backend or proxy", slog.String("removed", gone.String()))
	}
	if failed != nil {
		err = failed // what can't be listed is in it
	}
	if text := after.String(); text != "" {
		err = errors.Join(err, fmt.Errorf("still there: %s", text))
	}
	s.clean = err == nil
	if s.clean || ctx.Err() != nil {
		s.said.Differs(nil)
		return
	}
	if s.said.Differs(err) {
		s.o.Log.Warn("cannot remove the rules of another backend; retrying",
			slog.Any("err", err), slog.Duration("retry_in", RetryTime))
		s.o.Event(fmt.Sprintf("cannot remove the rules of another backend or proxy: %v; %s", err, Remedy))
	}
}

// Watch removes what could not be removed before, and looks for leftovers that come back, until ctx ends. It calls more
// each time.
func (s *Sweeper) Watch(ctx context.Context, more func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(LookInterval):
		}
		s.mu.Lock()
		switch {
		case s.clean:
			s.look(ctx)
		case s.applied.Load() && time.Since(s.tried) >= RetryTime:
			s.sweep(ctx)
		}
		s.mu.Unlock()
		more()
	}
}

func (s *Sweeper) look(ctx context.Context) {
	now, err := s.o.Find(false)
	s.left.Store(&now)
	if s.said.Differs(err) && err != nil {
		s.o.Log.Warn("cannot look for the rules of another proxy", slog.Any("err", err))
	}
	evidence := now.evidence()
	for _, kind := range []string{EvidenceIPTables, EvidenceNFTables, EvidenceIPVS} {
		if evidence[kind] == "" {
			s.o.Evidence.Gone(kind)
		}
	}
	switch {
	case len(evidence) == 0:
		s.since = time.Time{}
		return
	case s.since.IsZero():
		s.since = time.Now()
	}
	back := time.Since(s.since)
	if back < settleTime {
		return
	}
	for kind, owner := range evidence {
		s.o.Evidence.Seen(kind, fmt.Sprintf("objects of %s came back after they had been removed; vmapd removes them "+
			"after %v: end the other proxy, then restart vmapd", owner, s.pause))
	}
	if back >= s.pause {
		s.pause = restTime
		s.sweep(ctx)
	}
}

// evidence returns the evidence of other proxies, with the owner of each.
func (f Found) evidence() map[string]string {
	kinds := map[string]string{
		host.KindNFTChain: EvidenceIPTables, host.KindLegacyChain: EvidenceIPTables,
		kindTable: EvidenceNFTables,
	}
	evidence := map[string]string{}
	for l, n := range f {
		kind, ok := kinds[l.Kind]
		if !ok {
			kind = EvidenceIPVS
		}
		if n > 0 && evidence[kind] != host.OwnerKubeProxy {
			evidence[kind] = l.Owner
		}
	}
	return evidence
}

// without returns the objects of f that are more than those of other.
func (f Found) without(other Found) Found {
	rest := maps.Clone(f)
	for l, n := range other {
		if rest[l] -= n; n == host.Unknown {
			delete(rest, l)
		}
	}
	maps.DeleteFunc(rest, func(_ host.Leftover, n int) bool { return n <= 0 })
	return rest
}
