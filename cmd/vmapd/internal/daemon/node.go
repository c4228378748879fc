package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/buildinfo"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/nodesetup"
	"github.com/vmapd/vmapd/nft/others"
	"github.com/vmapd/vmapd/sync/events"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// announce logs the start, and sends events about the Node: the start, and notes on the configuration.
func (d *Daemon) announce(ctx context.Context) {
	p, attrs := d.dataplane, []slog.Attr{slog.String("version", buildinfo.Current().String())}
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
func (d *base) setUpNode() {
	o := nodesetup.Options{Log: d.log}
	for _, err := range nodesetup.Apply(o, d.config.Conntrack) {
		d.log.Warn("could not set sysctl; keeping its current value", slog.Any("err", err))
		d.events.Node(events.Warning, events.ReasonConntrackFailed, err.Error())
	}
	nodesetup.OOM(o, d.config.OOMScoreAdj)
	removed, err := others.RemoveStaleTraces()
	if err != nil {
		d.log.Warn("rules of a trace that was killed may still be there", slog.Any("err", err))
	}
	if len(removed) > 0 {
		d.log.Info("removed the tables of traces that were killed", slog.Any("tables", removed))
	}
}

// InitOnly applies the settings that need privilege. On a node that has just booted, connection
// tracking may not be loaded yet: opening a backend, which probes the kernel, loads it.
func InitOnly(c *config.Config, log *slog.Logger) error {
	d := &base{config: c, log: log} // sends no events, as nothing is programmed
	if backend, err := d.openBackend(); err != nil {
		log.Warn("no backend will work for the daemon", slog.Any("err", err))
	} else {
		_ = backend.close() // nothing was programmed
	}
	return nodesetup.InitOnly(nodesetup.Options{Log: log}, c.Conntrack)
}

// registration is how long the kubelet of a node that has just booted may take to register the Node, before its absence
// is reported.
const registration = 5 * time.Second

// nodeCheck reports that the cluster, or the files, have no Node with this node's name, and the end of that in a
// cluster: a deletion later is no wrong name. It is a [reconcile.Observer].
type nodeCheck struct {
	*base
	known   bool        // or nothing more is to be said
	missing *time.Timer // until the report, from the first round without the Node on
}

// Done implements [reconcile.Observer].
func (n *nodeCheck) Done(r reconcile.Round) {
	switch {
	case n.known:
	case len(n.config.From) > 0:
		n.known = true
		n.reportFiles(r.Snapshot.Node().Known)
	case r.Snapshot.Node().Known:
		n.known = true
		if n.missing != nil && !n.missing.Stop() { // it was reported
			n.log.Info("the cluster has this node's Node now", slog.String("node", n.nodeName))
		}
	case n.missing == nil:
		n.missing = time.AfterFunc(registration, n.report)
	}
}

// reportFiles says what may surprise with --from, in one line.
func (n *nodeCheck) reportFiles(known bool) {
	var notes []string
	own, err := os.Readlink("/proc/1/ns/net")
	if here, _ := os.Readlink("/proc/self/ns/net"); err == nil && own == here {
		notes = append(notes, "the Services of the files are programmed in this machine's own network namespace")
	}
	if !known {
		notes = append(notes, fmt.Sprintf("the files have no Node %q (--hostname-override), so no endpoint is local, "+
			"and the Node's addresses, pod ranges and zone are not known", n.nodeName))
	}
	if len(notes) > 0 {
		n.log.Warn("started with --from", slog.String("note", strings.Join(notes, "; ")))
	}
}

func (n *nodeCheck) report() {
	text := fmt.Sprintf("the cluster has no Node %q: the name comes from --hostname-override, or is the host's. "+
		"Until there is one, no endpoint is local for traffic policies, and the Node's addresses, pod ranges and zone "+
		"are not known. \"kubectl get nodes\" lists the names", n.nodeName)
	n.log.Warn("not ready", slog.String("reason", text))
	n.events.Node(events.Warning, events.ReasonNoNode, text)
}

// follow returns an error when the configuration's files mean something else than at the start: the
// supervisor then starts the process again, and the rules stay meanwhile. An invalid file changes nothing.
func (d *Daemon) follow(ctx context.Context) error {
	following, end := context.WithCancelCause(ctx)
	defer end(nil)
	d.config.Follow(following, func(c *config.Config, err error) {
		d.metrics.ConfigRead(err)
		d.refused.Store(nil)
		if err != nil {
			text := err.Error()
			d.refused.Store(&text)
			d.log.ErrorContext(ctx, "invalid configuration; keeping the previous one", slog.Any("err", err))
			return
		}
		if fields := config.Compare(d.config, c); len(fields) > 0 {
			end(fmt.Errorf("the configuration changed (%s): it applies at the next start; the rules stay",
				strings.Join(fields, ", ")))
		}
	})
	if ctx.Err() != nil {
		return nil
	}
	return context.Cause(following) // nil if there is no file to follow
}
