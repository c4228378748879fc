package conntrack

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/mdlayher/netlink"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/logonce"
	"github.com/vmapd/vmapd/sync/reconcile"
)

const (
	// DefaultInterval is the longest pause between two passes.
	DefaultInterval = time.Second
	// shortestPause bounds the number of passes where one takes next to no time.
	shortestPause = 50 * time.Millisecond
	// auditInterval is the time between passes over all flows, in case one was missed.
	auditInterval = time.Hour
	// slowestRetry bounds the time until the retry of a failed pass.
	slowestRetry = 30 * time.Second
)

// Options of a Reconciler.
type Options struct {
	Log *slog.Logger
	// NetNS is a file descriptor of the network namespace. 0 is the current one.
	NetNS int
	// Dial opens connections to another kernel; nil: to this machine's. It is for tests.
	Dial func() (*netlink.Conn, error)
	// Interval is the longest pause between the end of a pass and the next, if there is work, see pauseAfter. 0
	// means DefaultInterval.
	Interval time.Duration
	// Report, if not nil, is called after each pass. Run waits for it.
	Report func(Pass)
}

// Pass is one pass over the flows of a family.
type Pass struct {
	Family  model.Family
	Started time.Time // when the rules were taken
	Took    time.Duration
	Seen    int // flows that the kernel listed
	Deleted int
	Err     error
}

// Reconciler deletes flows without a serving endpoint. It is a reconcile.Observer, and does
// its work in Run.
type Reconciler struct {
	options Options
	kernel  kernel // Run's
	sweep   func(ctx context.Context, queries []query, stale func(*flow) bool) (seen, deleted int, err error)
	heard   chan struct{} // capacity 1: a round has ended

	mu       sync.Mutex // not held during a pass
	families [len(model.Families)]family

	said [len(model.Families)]logonce.Error // Run's
}

var _ reconcile.Beginner = (*Reconciler)(nil)

// New returns a Reconciler. It opens no socket: if the kernel lacks a feature, passes fail,
// which is logged and has no other effect.
func New(o Options) *Reconciler {
	o.Interval = cmp.Or(o.Interval, DefaultInterval)
	if o.Dial == nil {
		o.Dial = thisKernel(o.NetNS)
	}
	r := &Reconciler{options: o, kernel: kernel{dial: o.Dial}, heard: make(chan struct{}, 1)}
	r.sweep = r.kernel.sweep
	return r
}

// Begins implements reconcile.Beginner. Before the first round has succeeded, there is no pass that asks.
func (r *Reconciler) Begins(s *model.Snapshot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.families {
		if f := &r.families[i]; f.applied != nil {
			f.expect(s.Family(model.Families[i]))
		}
	}
}

// Done implements reconcile.Observer. A family that failed keeps its state: its old rules
// still send packets to the old endpoints. So do service ports that the kernel refused.
func (r *Reconciler) Done(round reconcile.Round) {
	now := time.Now()
	r.mu.Lock()
	for _, name := range model.Families {
		f, applied := &r.families[name], round.Snapshot.Family(name)
		if round.Failed[name] {
			f.expect(applied)
			f.failed = true
			continue
		}
		f.take(applied, round.Refused[name], now)
		f.todo.early = f.todo.early || round.Repair
	}
	r.mu.Unlock()
	reconcile.Signal(r.heard)
}

// Run does passes until ctx ends: the first at once after a round that may affect flows, and
// then with pauses.
func (r *Reconciler) Run(ctx context.Context) {
	defer r.kernel.close()
	audit := time.NewTicker(auditInterval)
	defer audit.Stop()
	alarm := time.NewTimer(auditInterval)
	defer alarm.Stop()
	retry := r.options.Interval
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.heard:
		case <-audit.C:
			r.audit()
		case <-alarm.C:
		}
		start := time.Now()
		did, ok := r.passes(ctx)
		pause := r.pauseAfter(time.Since(start))
		if ok {
			retry = r.options.Interval
		} else {
			pause, retry = retry, min(2*retry, max(slowestRetry, r.options.Interval))
		}
		if did {
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
		}
		r.set(alarm)
	}
}

// pauseAfter returns the pause after passes that took a time: nine times as long, so that passes have a tenth of the
// time, or the interval where the table is so large that this is less. Each flow to an endpoint that has ended loses
// what a client sends until its pass.
func (r *Reconciler) pauseAfter(took time.Duration) time.Duration {
	return min(max(9*took, shortestPause), r.options.Interval)
}

// set sets the alarm to the time at which work is due without a round.
func (r *Reconciler) set(alarm *time.Timer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	wait := auditInterval
	for i := range r.families {
		f := &r.families[i]
		if next := f.next(); !next.IsZero() {
			wait = min(wait, next.Sub(now))
		}
		if f.todo != (work{}) {
			wait = 0
		}
	}
	alarm.Reset(wait)
}

// audit makes the next pass look at all flows.
func (r *Reconciler) audit() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.families {
		if f := &r.families[i]; f.applied != nil {
			f.audit()
		}
	}
}

// passes does a pass for each family with pending work.
func (r *Reconciler) passes(ctx context.Context) (did, ok bool) {
	ok = true
	for _, f := range model.Families {
		r.mu.Lock()
		start := time.Now()
		work := r.families[f].begin(start)
		r.mu.Unlock()
		if work == nil {
			continue
		}
		did = true
		p := Pass{Family: f, Started: start}
		p.Seen, p.Deleted, p.Err = r.sweep(ctx, work.queries(f), func(fl *flow) bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			return work.stale(fl)
		})
		p.Took = time.Since(start)
		if ctx.Err() != nil {
			return did, ok
		}
		r.mu.Lock()
		r.families[f].end(work, p.Err)
		r.mu.Unlock()
		r.tell(ctx, p)
		ok = ok && p.Err == nil
	}
	return did, ok
}

func (r *Reconciler) tell(ctx context.Context, p Pass) {
	family := slog.String("family", p.Family.String())
	switch differs := r.said[p.Family].Differs(p.Err); {
	case differs && p.Err != nil:
		r.options.Log.LogAttrs(ctx, slog.LevelWarn, "cannot delete stale connection-tracking entries; retrying",
			family, slog.Any("err", p.Err))
	case differs:
		r.options.Log.LogAttrs(ctx, slog.LevelInfo, "deleting stale connection-tracking entries again", family)
	}
	if p.Deleted > 0 {
		r.options.Log.LogAttrs(ctx, slog.LevelDebug, "deleted stale flows", family,
			slog.Int("deleted", p.Deleted), slog.Int("seen", p.Seen), slog.Duration("took", p.Took))
	}
	if r.options.Report != nil {
		r.options.Report(p)
	}
}
