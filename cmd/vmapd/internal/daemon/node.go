package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/buildinfo"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/nodesetup"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/devices"
	"github.com/vmapd/vmapd/sync/events"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// announce logs the start, and sends events about the Node: the start, and notes on the configuration.
func (d *Daemon) announce(ctx context.Context) {
	p := d.dataplane
	d.Log.InfoContext(ctx, "started", slog.String("version", buildinfo.Current().String()),
		slog.String("node", d.nodeName), slog.String("backend", p.name), slog.String("with", p.with),
		slog.String("reason", p.why))
	d.events.Node(events.ReasonStarting, fmt.Sprintf("vmapd starts with %s: %s", p.name, p.why))
	for _, n := range d.Config.Notes {
		if n.Event {
			d.events.Node(events.ReasonConfiguration, n.Text)
		}
	}
	if len(d.Config.From) > 0 {
		d.noteFiles()
	}
}

// setUpNode applies the settings of connection tracking and the OOM score. Failures become warnings and events, and do
// not keep Services from being programmed.
func (d *Daemon) setUpNode() {
	o := nodesetup.Options{Log: d.Log}
	for _, err := range nodesetup.Apply(o, d.Config.KubeProxy.Conntrack) {
		d.events.Node(events.ReasonConntrackFailed, err.Error())
	}
	nodesetup.OOM(o, int(*d.Config.KubeProxy.OOMScoreAdj))
}

func (d *Daemon) followDevices(ctx context.Context) {
	devices.Follow(ctx, d.Log, d.Config.FastPath, func(names []string) {
		d.dataplane.nft.SetDevices(names)
		d.state.Update(reconcile.Change{}, func(*model.Builder) {}) // asks for another round
	})
}

// InitOnly applies the settings that need privilege, for an init container: the daemon then needs only CAP_NET_ADMIN. A
// failure is a warning: where the node is a container, the limit of connections is the host's. Opening a backend loads
// connection tracking, which a node that has just booted may lack.
func InitOnly(c *config.Config, log *slog.Logger) {
	d := &Daemon{Options: Options{Config: c, Log: log}} // sends no events, as nothing is programmed
	if _, err := d.openBackend(); err != nil {
		log.Warn("no backend will work for the daemon", slog.Any("err", err))
	}
	o := nodesetup.Options{Log: log}
	nodesetup.Apply(o, c.KubeProxy.Conntrack)
	nodesetup.LeadBridges(o)
}

// noteFiles says what may surprise with --from, in one line.
func (d *Daemon) noteFiles() {
	var notes []string
	own, err := os.Readlink("/proc/1/ns/net")
	if here, _ := os.Readlink("/proc/self/ns/net"); err == nil && own == here {
		notes = append(notes, "the Services of the files are programmed in this machine's own network namespace")
	}
	files, err := d.fromFiles()
	if err == nil {
		_, err = files.Node(d.nodeName)
	}
	if err != nil {
		notes = append(notes, fmt.Sprintf("the files have no Node %q (--hostname-override), so no endpoint is local, "+
			"and the Node's addresses, pod ranges and zone are not known", d.nodeName))
	}
	if len(notes) > 0 {
		d.Log.Warn("started with --from", slog.String("note", strings.Join(notes, "; ")))
	}
}

// follow returns an error when the configuration's files have changed: the supervisor then starts the process again,
// and the rules stay meanwhile. An invalid file changes nothing.
func (d *Daemon) follow(ctx context.Context) error {
	changed := d.Config.Follow(ctx, func(err error) {
		d.metrics.ConfigRead(err)
		d.refused.Store(&err)
		if err != nil {
			d.Log.ErrorContext(ctx, "invalid configuration; keeping the previous one", slog.Any("err", err))
		}
	})
	if changed {
		return errors.New("the configuration changed: it applies at the next start; the rules stay")
	}
	return nil
}
