package conntrack

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/reconcile"
)

const (
	// shortestPause bounds the number of passes where one takes next to no time, and longestPause the time for which what
	// clients send to an endpoint that has ended is lost.
	shortestPause, longestPause = 50 * time.Millisecond, time.Second
	// retryAfter is the pause after a pass that failed.
	retryAfter = 10 * time.Second
)

// Pass is one pass over the flows of a family.
type Pass struct {
	Family  model.Family
	Took    time.Duration
	Deleted int
	Err     error
}

// Reconciler deletes flows without a serving endpoint. It is a reconcile.Observer, and does its work in Run.
type Reconciler struct {
	log    *slog.Logger
	table  *Table
	report func(Pass)
	rounds *reconcile.Worker[families]

	// The rest is Run's.
	sweep func(context.Context, model.Family, Filter, func(*Flow) bool) (deleted int, err error)
	said  [len(model.Families)]reconcile.LastError
}

type families [len(model.Families)]family

// New returns a Reconciler of the flows in a table. It opens no socket: if the kernel lacks a feature, passes fail,
// which is logged and has no other effect. Run calls report after each pass, and waits for it.
func New(log *slog.Logger, t *Table, report func(Pass)) *Reconciler {
	return &Reconciler{log: log, table: t, report: report, rounds: reconcile.NewWorker(families{}), sweep: t.sweep}
}

// Done implements reconcile.Observer. A family that failed keeps its state: its old rules
// still send packets to the old endpoints.
func (r *Reconciler) Done(round reconcile.Round) {
	now := time.Now()
	r.rounds.With(func(all *families) {
		for _, name := range model.Families {
			if f := &all[name]; !round.Failed[name] {
				f.take(round.Snapshot.Family(name), now, round.Repair)
			}
		}
	})
	r.rounds.Wake()
}

// Run does passes until ctx ends: the first at once after a round that may affect flows, and then with pauses.
func (r *Reconciler) Run(ctx context.Context) {
	defer r.table.close()
	r.rounds.Run(ctx, func() time.Duration { return r.work(ctx) })
}

// work does the passes that are due, and pauses after them. It returns the time until the next one without a round.
func (r *Reconciler) work(ctx context.Context) time.Duration {
	pause := time.Duration(0)
	for _, name := range model.Families {
		pause = max(pause, r.pass(ctx, name))
	}
	select {
	case <-ctx.Done():
	case <-time.After(pause):
	}
	next := auditInterval
	r.rounds.With(func(all *families) {
		for _, f := range all {
			next = min(next, f.next(time.Now()))
		}
	})
	return next
}

// pass does the work of a family that is due, and returns how long to rest then; 0: there was none. Rounds go on
// meanwhile: each flow is judged by what is known then.
func (r *Reconciler) pass(ctx context.Context, name model.Family) (rest time.Duration) {
	start := time.Now()
	var work *pass
	r.rounds.With(func(all *families) { work = all[name].begin(start) })
	if work == nil {
		return 0
	}
	done := Pass{Family: name}
	for _, q := range work.filters() {
		deleted, err := r.sweep(ctx, name, q, func(f *Flow) (stale bool) {
			r.rounds.With(func(all *families) { stale = all[name].stale(work, f) })
			return stale
		})
		done.Deleted, done.Err = done.Deleted+deleted, cmp.Or(err, done.Err)
	}
	done.Took = time.Since(start)
	if ctx.Err() != nil {
		return 0
	}
	r.rounds.With(func(all *families) { all[name].end(work, done.Err) })
	r.say(done)
	r.report(done)
	if done.Err != nil {
		return retryAfter
	}
	return min(max(9*done.Took, shortestPause), longestPause)
}

// say logs an error once, and its end.
func (r *Reconciler) say(p Pass) {
	family := slog.String("family", p.Family.String())
	switch differs := r.said[p.Family].Differs(p.Err); {
	case differs && p.Err != nil:
		r.log.Warn("cannot delete stale connection-tracking entries; retrying", family, slog.Any("err", p.Err))
	case differs:
		r.log.Info("deleting stale connection-tracking entries again", family)
	}
}
