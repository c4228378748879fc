package simulate

import (
	"log/slog"
	"time"

	"github.com/vmapd/vmapd/sync/conntrack"
	"github.com/vmapd/vmapd/sync/health"
)

// observers are those of a daemon's loop.
type observers struct {
	tracker *health.Tracker
	flows   *conntrack.Reconciler
	tracked uint64 // connections of flows, so far
}

func (d *daemon) observe() {
	d.observers = observers{
		tracker: health.NewTracker(health.Options{
			SyncPeriod: 30 * time.Second, NodeName: d.w.node.Config.NodeName, Queued: d.state.Queued,
			Eligibility: func(string) {},
		}),
		flows: conntrack.New(slog.New(slog.DiscardHandler), &conntrack.Table{Dial: d.track}, func(p conntrack.Pass) {
			d.w.note("%d %v flows ended: %v", p.Deleted, p.Family, p.Err)
		}),
	}
}
