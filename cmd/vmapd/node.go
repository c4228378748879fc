package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/nodesetup"
	"github.com/vmapd/vmapd/sync/events"
	"github.com/vmapd/vmapd/sync/informer"
)

// newRecorder returns what writes events, with a client of its own: they can't hold up lists.
func (d *daemon) newRecorder(nodeName string) (*events.Recorder, error) {
	o := events.Options{NodeName: nodeName, Log: d.log}
	if c := d.current.Load(); len(c.From) == 0 {
		var err error
		if o.Client, err = informer.Connect(c.Client()); err != nil {
			return nil, fmt.Errorf("connect to the cluster for events: %w", err)
		}
	}
	return events.New(o), nil
}

// announce tells the cluster that this node has a proxy now, and what of its configuration
// its administrator should know.
func (d *daemon) announce(p *dataplane) {
	d.events.Node(events.Normal, events.ReasonStarting, events.ActionStart, fmt.Sprintf("vmapd starts with %s: %s", p.name, p.why))
	for _, n := range d.current.Load().Notes {
		if n.Event {
			d.events.Node(events.Warning, events.ReasonConfiguration, events.ActionStart, n.Text)
		}
	}
}

// setUpNode sets what all connections of the node have in common. What can't be set is said,
// and keeps no Service from being programmed.
func (d *daemon) setUpNode(ctx context.Context, c *config.Config) {
	o := nodesetup.Options{Log: d.log, Failed: func(f nodesetup.WriteError) {
		reason := events.ReasonConntrackFailed
		if errors.Is(f, nodesetup.ErrReadOnly) {
			reason = events.ReasonReadOnlySysFS
		}
		d.events.Node(events.Warning, reason, events.ActionStart, f.Error())
	}}
	nodesetup.Apply(ctx, o, c.Conntrack)
	nodesetup.OOM(ctx, o, c.OOMScoreAdj)
}

// initOnly does what needs all privileges. On a node that has just booted, nobody needed
// connection tracking before: only with a backend that looks what the kernel can do, the
// module is loaded, and there is something to set.
func (d *daemon) initOnly(ctx context.Context, c *config.Config) error {
	if plane, err := d.openBackend(ctx, d.log); err != nil {
		d.log.LogAttrs(ctx, slog.LevelWarn, "the daemon will find no backend", slog.Any("err", err))
	} else {
		_ = plane.close() // nothing was done with it
	}
	return nodesetup.InitOnly(ctx, nodesetup.Options{Log: d.log}, c.Conntrack)
}
