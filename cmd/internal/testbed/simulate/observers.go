package simulate

import (
	"log/slog"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/conntrack"
	"github.com/vmapd/vmapd/sync/health"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// observers are those of a daemon's loop.
type observers struct {
	tracker *health.Tracker
	flows   *conntrack.Reconciler
	tracked uint64 // connections of flows, so far
	failing failing
}

// failing is a second opinion on how long families have failed.
type failing struct {
	since *[len(model.Families)]time.Time // zero: it works
}

// Done implements [reconcile.Observer].
func (o failing) Done(r reconcile.Round) {
	for _, f := range model.Families {
		switch {
		case r.Err == nil || !r.Failed[f]:
			o.since[f] = time.Time{}
		case o.since[f].IsZero():
			o.since[f] = r.Started
		}
	}
}

func (d *daemon) observe() {
	d.observers = observers{
		tracker: health.NewTracker(health.Options{NodeName: d.w.node.Config.NodeName, Queued: d.state.Queued}),
		flows: conntrack.New(slog.New(slog.DiscardHandler), &conntrack.Table{Dial: d.track}, func(p conntrack.Pass) {
			d.w.note("%d %v flows ended: %v", p.Deleted, p.Family, p.Err)
		}),
		failing: failing{new([len(model.Families)]time.Time)},
	}
}

// checkTracker checks the health a daemon reports: a family is not healthy if it has failed for twice the period. In
// the seconds around that moment it may say either.
func (w *world) checkTracker() {
	d := w.daemon
	if d == nil {
		return
	}
	const limit, around = 2 * health.DefaultSyncPeriod, 2 * time.Second
	for f, is := range d.observers.tracker.Status().Families {
		since := d.observers.failing.since[f]
		failed := time.Since(since)
		switch {
		case since.IsZero() && is.Healthy, !since.IsZero() && failed < limit+around && failed > limit-around:
		case is.Healthy != (since.IsZero() || failed < limit):
			w.fail("family %v fails since %v, and is said to be healthy: %v", model.Families[f], since, is.Healthy)
		}
	}
}
