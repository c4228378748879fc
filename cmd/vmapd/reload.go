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

// running has the parts of the daemon to which a changed configuration is applied.
type running struct {
	*daemon
	plane     *dataplane
	observers *observers
	ports     *ports
	loop      *reconcile.Loop
}

// tasks are all tasks of the daemon except those of its inputs.
func (r *running) tasks() []task {
	return append(r.observers.tasks(), quiet(r.events.Run), quiet(r.loop.Run), r.ports.metrics.Run, r.ports.healthz.Run, r.follow)
}

// follow applies changes of the configuration's files without a restart. It returns an error if a
// field changed that needs a new start: the supervisor then starts the process again, and the
// rules stay meanwhile.
func (r *running) follow(ctx context.Context) error {
	following, end := context.WithCancelCause(ctx)
	defer end(nil)
	r.current.Load().Follow(following, r.log, func(c *config.Config, err error) {
		if err == nil {
			err = r.change(ctx, c, end)
		}
		if following.Err() != nil {
			return // a new start is needed, or the daemon ends
		}
		r.observers.metrics.ConfigReloaded(time.Now(), err)
		r.refused.Store(nil)
		if err != nil {
			text := err.Error()
			r.refused.Store(&text)
			r.log.LogAttrs(ctx, slog.LevelError, "invalid configuration; keeping the previous one", slog.Any("err", err))
		}
	})
	if ctx.Err() != nil {
		return nil
	}
	return context.Cause(following) // nil if there is no file to follow
}

// change applies a configuration.
func (r *running) change(ctx context.Context, c *config.Config, end func(error)) error {
	before := r.current.Load()
	inPlace, atStart := config.Compare(before, c)
	if len(atStart) > 0 {
		end(fmt.Errorf("the configuration changed in %s, which needs a new start", strings.Join(atStart, ", ")))
		return nil
	}
	if len(inPlace) == 0 {
		return nil
	}
	backend := config.Backend(r.plane.name)
	traffic, err := r.traffic(c, backend)
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
	r.observers.tracker.SetSyncPeriod(c.SyncPeriod(backend))
	r.observers.services.SetRestricted(!c.Model().NodePortAddresses.All)
	if r.plane.nft != nil {
		r.plane.nft.SetCounters(c.ServiceCounters)
	}
	r.loop.SetIntervals(c.MinSyncPeriod(backend), resyncInterval(c, backend))
	r.loop.State.Update(reconcile.Change{}, func(b *model.Builder) { b.SetConfig(traffic) })
	return nil
}
