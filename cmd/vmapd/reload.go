package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// running is what a changed configuration is applied to.
type running struct {
	*daemon
	plane     *dataplane
	observers *observers
	ports     *ports
	loop      *reconcile.Loop
}

// follow puts changes of the configuration's files in force, without a restart. It ends with
// an error if something changed that only a start can apply; whoever supervises the process
// then starts it again, and the rules stay meanwhile.
func (r *running) follow(ctx context.Context) error {
	following, end := context.WithCancelCause(ctx)
	defer end(nil)
	r.current.Load().Follow(following, r.log, func(c *config.Config, err error) {
		if err == nil {
			err = r.change(ctx, c, end)
		}
		if following.Err() != nil {
			return // a new start is needed, or we end: nothing was put in force
		}
		r.observers.metrics.ConfigReloaded(time.Now(), err)
		if err != nil {
			r.log.LogAttrs(ctx, slog.LevelError, "the changed configuration can't be used; the one before stays in force", slog.Any("err", err))
		}
	})
	if ctx.Err() != nil {
		return nil
	}
	return context.Cause(following) // nil if there is no file to follow
}

// change puts a configuration in force.
func (r *running) change(ctx context.Context, c *config.Config, end func(error)) error {
	before := r.current.Load()
	inPlace, atStart := config.Compare(before, c)
	if len(atStart) > 0 {
		end(fmt.Errorf("the configuration changed in %s, which takes a new start", strings.Join(atStart, ", ")))
		return nil
	}
	if len(inPlace) == 0 {
		return nil
	}
	traffic, err := r.traffic(c)
	if err != nil {
		return err
	}
	if err := r.ports.set(c); err != nil {
		return err
	}
	r.current.Store(c)
	r.log.LogAttrs(ctx, slog.LevelInfo, "configuration changed", slog.String("fields", strings.Join(inPlace, ", ")))
	r.say(ctx, c, before)
	r.level.Set(levelOf(c.Verbosity))
	if c.Conntrack != before.Conntrack || c.OOMScoreAdj != before.OOMScoreAdj {
		r.setUpNode(ctx, c)
	}
	backend := config.Backend(r.plane.name)
	r.observers.tracker.SetSyncPeriod(c.SyncPeriod(backend))
	r.observers.services.SetRestricted(restricted(c))
	if r.plane.nft != nil {
		r.plane.nft.SetCounters(c.ServiceCounters)
	}
	r.loop.SetIntervals(c.MinSyncPeriod(backend), resyncInterval(c, backend))
	r.loop.State.Update(reconcile.Change{}, func(b *model.Builder) { b.SetConfig(traffic) })
	return nil
}
