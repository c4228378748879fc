package reconcile

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/vmapd/vmapd/model"
)

// Backend programs one node's dataplane.
type Backend interface {
	// Apply makes the dataplane match s. If it fails, the old state stays as far as
	// this dataplane is atomic, and the next Apply repairs the rest.
	Apply(ctx context.Context, s *model.Snapshot) error
	// Resync makes the next Apply look at what is really there before it compares.
	Resync()
}

// Defaults of a Loop.
const (
	DefaultResyncInterval = time.Hour // as kube-proxy's full sync
	firstRetry            = 100 * time.Millisecond
	slowestRetry          = 30 * time.Second
	// changeRetry is how soon after a failure a change may try again: it may be what
	// mends the failure.
	changeRetry = time.Second
	// repairInterval is the least time between two repairs of what others change, so that
	// somebody who does it all the time can't keep us busy alone. Still each change of
	// theirs is mended within a second.
	repairInterval = 300 * time.Millisecond
)

// Loop keeps a Backend in line with a State.
type Loop struct {
	State   *State
	Backend Backend
	Log     *slog.Logger
	// MinInterval is the least time between the end of one round and the beginning of
	// the next that is for a change or a retry. The default, 0, is right for a
	// dataplane whose rounds are short.
	MinInterval time.Duration
	// ResyncInterval is how often the dataplane is compared in full, in case somebody
	// else changed it. 0 means DefaultResyncInterval.
	ResyncInterval time.Duration
	// ForeignChange receives when others may have changed the dataplane: it is then compared
	// in full and repaired, without waiting for MinInterval. nil: never.
	ForeignChange <-chan struct{}
	// Again receives when the backend wants to be called once more, though nothing
	// changed. nil: never.
	Again <-chan struct{}
	// Describe puts a problem into words; nil means Problem.Error. Sources that know
	// the file and the line say so here.
	Describe func(model.Problem) string
	// Observers are told what happens.
	Observers []Observer

	mu        sync.Mutex // guards MinInterval and ResyncInterval while Run runs
	intervals chan struct{}

	full    bool // the next round compares with what is really there
	started time.Time
	applied *model.Snapshot // the last that was applied without error
	seen    *model.Snapshot // the last whose problems were logged
	backoff wait.Backoff
}

// SetIntervals changes MinInterval and ResyncInterval while Run runs. The next comparison in
// full is a whole interval away.
func (l *Loop) SetIntervals(least, resync time.Duration) {
	changed := l.intervalsChanged()
	l.mu.Lock()
	l.MinInterval, l.ResyncInterval = least, resync
	l.mu.Unlock()
	select {
	case changed <- struct{}{}:
	default:
	}
}

func (l *Loop) intervalsChanged() chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.intervals == nil {
		l.intervals = make(chan struct{}, 1)
	}
	return l.intervals
}

func (l *Loop) currentIntervals() (least, resync time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.MinInterval, cmp.Or(l.ResyncInterval, DefaultResyncInterval)
}

// Run applies snapshots until ctx ends. The dataplane stays as it is then.
func (l *Loop) Run(ctx context.Context) {
	intervals := l.intervalsChanged()
	least, interval := l.currentIntervals()
	resync := time.NewTicker(interval)
	defer resync.Stop()
	l.started = time.Now()
	l.full = true
	l.resetBackoff()
	l.State.observe(func(at time.Time) {
		for _, o := range l.Observers {
			o.Queued(at)
		}
	})
	// A channel is nil while it shall not be heard.
	changed, foreignChange := l.State.Changed(), l.ForeignChange
	var retry, rested, calm <-chan time.Time
	for {
		repair := false
		select {
		case <-ctx.Done():
			return
		case <-rested:
			changed = l.State.Changed()
			continue
		case <-calm:
			foreignChange = l.ForeignChange
			continue
		case <-intervals:
			least, interval = l.currentIntervals()
			resync.Reset(interval)
			continue
		case <-changed:
		case <-retry:
		case <-l.Again:
		case <-resync.C:
			l.full = true
			l.Backend.Resync()
		case <-foreignChange:
			repair = true
			l.Log.LogAttrs(ctx, slog.LevelWarn, "others changed our rules; putting them right")
			l.full = true
			l.Backend.Resync()
		}
		if snapshot, taken, ok := l.State.take(); ok {
			failed := l.round(ctx, snapshot, taken)
			pause := least
			retry = nil
			if failed > 0 {
				pause = max(pause, min(failed, changeRetry))
				retry = time.After(max(pause, failed))
			}
			if pause > 0 {
				changed, rested = nil, time.After(pause)
			}
		}
		if repair {
			foreignChange, calm = nil, time.After(repairInterval)
		}
	}
}

// round applies one snapshot. If that fails, it returns after how long to try again.
func (l *Loop) round(ctx context.Context, s *model.Snapshot, taken pending) time.Duration {
	l.logProblems(ctx, s)
	start := time.Now()
	err := l.Backend.Apply(ctx, s)
	if ctx.Err() != nil {
		return 0
	}
	l.tell(Round{
		Snapshot: s, Started: start, Took: time.Since(start), Full: l.full, Err: err, Failed: failedFamilies(err),
		Services: taken.services, EndpointSlices: taken.endpointSlices, Triggers: taken.triggers, Queued: l.State.waiting(),
	})
	l.full = err != nil
	switch {
	case err != nil:
		again := l.backoff.Step()
		l.Log.LogAttrs(ctx, slog.LevelError, "apply failed; what was programmed stays",
			slog.Any("err", err), slog.Duration("retry_in", again))
		return again
	case l.applied == nil:
		l.Log.LogAttrs(ctx, slog.LevelInfo, "ready", slog.Duration("after", time.Since(l.started)),
			slog.Int("service_ports_ipv4", s.Family(model.IPv4).NumServicePorts()),
			slog.Int("service_ports_ipv6", s.Family(model.IPv6).NumServicePorts()))
	}
	l.applied = s
	l.resetBackoff()
	return 0
}

func (l *Loop) tell(r Round) {
	for _, o := range l.Observers {
		o.Done(r)
	}
}

func (l *Loop) resetBackoff() {
	const doublings = 16
	l.backoff = wait.Backoff{Duration: firstRetry, Factor: 2, Jitter: 0.1, Steps: doublings, Cap: slowestRetry}
}

// logProblems says what is wrong with objects now and was not before, and what is
// mended.
func (l *Loop) logProblems(ctx context.Context, s *model.Snapshot) {
	old := l.seen
	l.seen = s
	if old != nil && s.SameProblems(old) {
		return
	}
	before := map[model.Problem]bool{}
	if old != nil {
		for _, p := range old.Problems() {
			before[p] = true
		}
	}
	describe := l.Describe
	if describe == nil {
		describe = model.Problem.Error
	}
	for _, p := range s.Problems() {
		if !before[p] {
			l.Log.LogAttrs(ctx, slog.LevelWarn, "left out", slog.String("problem", describe(p)))
		}
		delete(before, p)
	}
	for p := range before {
		l.Log.LogAttrs(ctx, slog.LevelInfo, "no longer a problem", slog.String("problem", p.Error()))
	}
}
