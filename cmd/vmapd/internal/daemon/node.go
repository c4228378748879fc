package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/buildinfo"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/nodesetup"
	"github.com/vmapd/vmapd/nft/others"
	"github.com/vmapd/vmapd/sync/events"
)

// announce logs the start, and sends events about the Node: the start, and notes on the
// configuration.
func (d *Daemon) announce(ctx context.Context) {
	p, attrs := d.plane, []slog.Attr{slog.String("version", buildinfo.Current().String())}
	attrs = append(attrs, slog.String("node", d.nodeName), slog.String("backend", p.name))
	if p.with != "" {
		attrs = append(attrs, slog.String("with", p.with))
	}
	d.log.LogAttrs(ctx, slog.LevelInfo, "started", append(attrs, slog.String("reason", p.why))...)
	d.events.Node(events.Normal, events.ReasonStarting, fmt.Sprintf("vmapd starts with %s: %s", p.name, p.why))
	for _, n := range d.config.Notes {
		if n.Event {
			d.events.Node(events.Warning, events.ReasonConfiguration, n.Text)
		}
	}
}

// setUpNode applies the settings of connection tracking and the OOM score, and removes the rules of
// a trace that was killed. Failures become warnings and events, and do not keep Services from being programmed.
func (d *base) setUpNode(ctx context.Context) {
	o := nodesetup.Options{Log: d.log, Failed: func(f nodesetup.WriteError) {
		reason := events.ReasonConntrackFailed
		if errors.Is(f, nodesetup.ErrReadOnly) {
			reason = events.ReasonReadOnlySysFS
		}
		d.events.Node(events.Warning, reason, f.Error())
	}}
	nodesetup.Apply(o, d.config.Conntrack)
	nodesetup.OOM(o, d.config.OOMScoreAdj)
	if err := others.RemoveStaleTraces(); err != nil {
		d.log.Warn("rules of a trace that was killed may still be there", slog.Any("err", err))
	}
}

// InitOnly applies the settings that need privilege. On a node that has just booted, connection
// tracking may not be loaded yet: opening a backend, which probes the kernel, loads it.
func InitOnly(ctx context.Context, c *config.Config, log *slog.Logger) error {
	d := &base{config: c, log: log} // sends no events, as nothing is programmed
	if plane, err := d.openBackend(nil); err != nil {
		log.Warn("no backend will work for the daemon", slog.Any("err", err))
	} else {
		_ = plane.close() // nothing was programmed
	}
	return nodesetup.InitOnly(nodesetup.Options{Log: log}, c.Conntrack)
}
