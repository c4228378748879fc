package conntrack

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/reconcile"
)

const (
	// shortestPause bounds the number of passes where one takes next to no time, and longestPause the time for which what
	// clients send to an endpoint that has ended is lost.
	shortestPause, longestPause = 50 * time.Millisecond, time.Second
	// auditInterval is the time between passes over all flows, in case one was missed.
	auditInterval = time.Hour
	// retryAfter is the pause after a pass that failed.
	retryAfter = 10 * time.Second
)

// Options of a Reconciler.
type Options struct {
	Log *slog.Logger
	// Table is where flows are deleted.
	Table *Table
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
	rounds  *reconcile.Worker[families]

	// The rest is Run's.
	sweep func(context.Context, model.Family, Filter, func(*Flow) bool) (seen, deleted int, all bool, err error)
	said  [len(model.Families)]reconcile.LastError
	audit time.Time // when all flows are looked at again
}

type families [len(model.Families)]family

var _ reconcile.Beginner = (*Reconciler)(nil)

// New returns a Reconciler. It opens no socket: if the kernel lacks a feature, passes fail,
// which is logged and has no other effect.
func New(o Options) *Reconciler {
	return &Reconciler{options: o, rounds: reconcile.NewWorker(families{}), sweep: o.Table.sweep}
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
// still send packets to the old endpoints.
func (r *Reconciler) Done(round reconcile.Round) {
	now := time.Now()
	r.each(func(name model.Family, f *family) {
		if !round.Failed[name] {
			f.take(round.Snapshot.Family(name), now)
			if round.Repair {
				f.whole = max(f.whole, aRepair)
			}
		}
	})
	r.rounds.Wake()
}

// Run does passes until ctx ends: the first at once after a round that may affect flows, and then with pauses.
func (r *Reconciler) Run(ctx context.Context) {
	defer r.options.Table.close()
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
				f.whole = max(f.whole, anAudit)
			}
		})
	}
	pause := time.Duration(0)
	for _, name := range model.Families {
		switch p := r.pass(ctx, name); {
		case p == nil:
		case p.Err != nil:
			pause = retryAfter
		case pause == 0:
			pause = shortestPause
		}
	}
	if pause == shortestPause {
		pause = min(max(9*time.Since(start), pause), longestPause)
	}
	select {
	case <-ctx.Done():
	case <-time.After(pause):
	}
	next := time.Until(r.audit)
	r.each(func(_ model.Family, f *family) {
		if at := f.next(); !at.IsZero() {
			next = min(next, time.Until(at))
		}
		if f.whole != isNotListed {
			next = 0
		}
	})
	return max(0, next)
}

// pass does the work of a family that is due; nil: there is none. Rounds go on meanwhile: each flow is judged by what
// is known then.
func (r *Reconciler) pass(ctx context.Context, name model.Family) *Pass {
	start := time.Now()
	var work *pass
	r.rounds.With(func(all *families) { work = all[name].begin(start) })
	if work == nil {
		return nil
	}
	done := &Pass{Family: name}
	var listed *Flow
	var isStale bool
	ask := func(all *families) { isStale = all[name].stale(work, listed) } // one function for all flows
	for _, q := range work.filters() {
		seen, deleted, all, err := r.sweep(ctx, name, q, func(f *Flow) bool {
			listed = f
			r.rounds.With(ask)
			return isStale
		})
		done.Seen, done.Deleted, done.Err = done.Seen+seen, done.Deleted+deleted, errors.Join(done.Err, err)
		if all {
			break
		}
	}
	done.Took = time.Since(start)
	if ctx.Err() == nil {
		r.rounds.With(func(all *families) { all[name].end(work, done.Err) })
		r.report(*done)
	}
	return done
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
