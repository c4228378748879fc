package conntrack

import (
	"cmp"
	"context"
	"log/slog"
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
	Took    time.Duration
	Seen    int // flows that the kernel listed
	Deleted int
	Err     error
}

// Reconciler deletes flows without a serving endpoint. It is a reconcile.Observer, and does its work in Run.
type Reconciler struct {
	options Options
	rounds  *reconcile.Follower[families]

	// The rest is Run's.
	table *table
	sweep func(context.Context, model.Family, model.Protocol, func(*flow) bool) (seen, deleted int, err error)
	said  [len(model.Families)]logonce.Error
	retry time.Duration // the pause after the next failure
	audit time.Time     // when all flows are looked at again
}

type families [len(model.Families)]family

var _ reconcile.Beginner = (*Reconciler)(nil)

// New returns a Reconciler. It opens no socket: if the kernel lacks a feature, passes fail,
// which is logged and has no other effect.
func New(o Options) *Reconciler {
	o.Interval = cmp.Or(o.Interval, DefaultInterval)
	if o.Dial == nil {
		o.Dial = thisKernel(o.NetNS)
	}
	r := &Reconciler{
		options: o, rounds: reconcile.NewFollower(families{}), table: &table{dial: o.Dial}, retry: o.Interval,
	}
	r.sweep = r.table.sweep
	return r
}

// each calls do with each family. No round changes them meanwhile.
func (r *Reconciler) each(do func(name model.Family, f *family)) {
	r.rounds.With(func(all *families) {
		for _, name := range model.Families {
			do(name, &all[name])
		}
	})
}

// Begins implements reconcile.Beginner.
func (r *Reconciler) Begins(s *model.Snapshot) {
	r.each(func(name model.Family, f *family) { f.begun = s.Family(name) })
}

// Done implements reconcile.Observer. A family that failed keeps its state: its old rules
// still send packets to the old endpoints. So do service ports that the kernel refused.
func (r *Reconciler) Done(round reconcile.Round) {
	now := time.Now()
	r.each(func(name model.Family, f *family) {
		s := round.Snapshot.Family(name)
		if round.Failed[name] {
			f.fail(s)
			return
		}
		f.take(s, round.Refused[name], now)
		f.todo.early = f.todo.early || round.Repair
	})
	r.rounds.Wake()
}

// Run does passes until ctx ends: the first at once after a round that may affect flows, and then with pauses.
func (r *Reconciler) Run(ctx context.Context) {
	defer r.table.close()
	r.audit = time.Now().Add(auditInterval)
	r.rounds.Run(ctx, func() time.Duration { return r.work(ctx) })
}

// work does the passes that are due, and pauses after them. It returns the time until the next one without a round.
func (r *Reconciler) work(ctx context.Context) time.Duration {
	start := time.Now()
	if !start.Before(r.audit) {
		r.audit = start.Add(auditInterval)
		r.each(func(_ model.Family, f *family) {
			if f.applied != nil {
				f.todo.add(work{udp: true, streams: true})
			}
		})
	}
	did, ok := r.passes(ctx)
	pause := r.pauseAfter(time.Since(start))
	if ok {
		r.retry = r.options.Interval
	} else {
		pause, r.retry = r.retry, min(2*r.retry, max(slowestRetry, r.options.Interval))
	}
	if did {
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	next := time.Until(r.audit)
	r.each(func(_ model.Family, f *family) {
		if at := f.next(); !at.IsZero() {
			next = min(next, time.Until(at))
		}
		if f.todo != (work{}) {
			next = 0
		}
	})
	return max(0, next)
}

// pauseAfter returns the pause after passes that took a time: nine times as long, or the interval if that is less. Each
// flow to an endpoint that has ended loses what a client sends until its pass.
func (r *Reconciler) pauseAfter(took time.Duration) time.Duration {
	return min(max(9*took, shortestPause), r.options.Interval)
}

// passes does a pass for each family with pending work.
func (r *Reconciler) passes(ctx context.Context) (did, ok bool) {
	ok = true
	for _, f := range model.Families {
		start := time.Now()
		var work *pass
		r.rounds.With(func(all *families) { work = all[f].begin(start) })
		if work == nil {
			continue
		}
		did = true
		p := Pass{Family: f}
		p.Seen, p.Deleted, p.Err = r.sweep(ctx, f, work.only(), r.judge(work))
		p.Took = time.Since(start)
		if ctx.Err() != nil {
			return did, ok
		}
		r.rounds.With(func(all *families) { all[f].end(work, p.Err) })
		r.report(p)
		ok = ok && p.Err == nil
	}
	return did, ok
}

// judge returns the question whether a flow is stale by the rounds so far.
func (r *Reconciler) judge(p *pass) func(*flow) bool {
	var listed *flow
	var current, stale bool
	var applied, begun *model.FamilySnapshot
	ask := func(*families) { // one function for all flows
		applied, begun = p.applied, p.begun
		if current = p.isCurrent(); current {
			stale = p.stale(listed)
		}
	}
	return func(f *flow) bool {
		listed = f
		for r.rounds.With(ask); !current; r.rounds.With(ask) {
			p.follow(applied, begun)
		}
		return stale
	}
}

func (r *Reconciler) report(p Pass) {
	family := slog.String("family", p.Family.String())
	switch differs := r.said[p.Family].Differs(p.Err); {
	case differs && p.Err != nil:
		r.options.Log.Warn("cannot delete stale connection-tracking entries; retrying", family, slog.Any("err", p.Err))
	case differs:
		r.options.Log.Info("deleting stale connection-tracking entries again", family)
	}
	if p.Deleted > 0 {
		r.options.Log.Debug("deleted stale flows", family,
			slog.Int("deleted", p.Deleted), slog.Int("seen", p.Seen), slog.Duration("took", p.Took))
	}
	if r.options.Report != nil {
		r.options.Report(p)
	}
}
