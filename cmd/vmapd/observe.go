package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/metrics"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/nodesetup"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/kernel"
	"github.com/vmapd/vmapd/sync/conntrack"
	"github.com/vmapd/vmapd/sync/events"
	"github.com/vmapd/vmapd/sync/health"
	"github.com/vmapd/vmapd/sync/localhost"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// observers are told of each round. They serve metrics, probes, health checks and node ports
// on loopback, write events, and delete stale flows from connection tracking.
type observers struct {
	metrics   *metrics.Metrics
	tracker   *health.Tracker
	services  *health.Services
	localhost *localhost.Forwarder
	events    *events.Recorder
	flows     *conntrack.Reconciler // nil with IPVS, which has a table of its own
}

func (d *daemon) observe(p *dataplane, state *reconcile.State) *observers {
	c := d.current.Load()
	o := &observers{events: d.events}
	o.localhost = localhost.New(localhost.Options{
		Log: d.log,
		Failed: func(service model.NamespacedName, err error) {
			d.events.Service(service, events.Warning, events.ReasonNodePortFailed, events.ActionListen, err.Error())
		},
	})
	o.metrics = metrics.New(metrics.Options{
		Backend: p.name, Reason: p.why, Started: d.started,
		NFT: nftStats(p.nft), Legacy: p.stats, Pending: state.Pending, Localhost: localhostStats(o.localhost),
		ConntrackTable: conntrackTable, ServiceConnections: serviceConnections(p.nft, d.log),
		EventsDropped: d.events.Dropped,
	})
	o.metrics.ConfigReloaded(d.started, nil)
	for gate, on := range c.KubeProxy().FeatureGates {
		o.metrics.Feature(gate, "", on)
	}
	o.tracker = health.NewTracker(health.Options{
		SyncPeriod: c.SyncPeriod(config.Backend(p.name)), Count: o.metrics.HTTP,
	})
	o.services = health.NewServices(health.ServicesOptions{
		Healthy: o.tracker.Healthy, Restricted: restricted(c), Log: d.log,
		Failed: func(service model.NamespacedName, _ uint16, err error) {
			d.events.Service(service, events.Warning, events.ReasonServiceHealthFailed, events.ActionListen, err.Error())
		},
	})
	if p.name != string(config.IPVS) {
		o.flows = conntrack.New(conntrack.Options{Log: d.log, Report: func(pass conntrack.Pass) {
			o.metrics.Conntrack(pass.Family, pass.Took, pass.Deleted)
		}})
	}
	if p.nft != nil {
		p.committed = func(c kernel.Commit) { o.metrics.Batch(c.Family, c.Operations, c.Bytes, c.Took) }
	}
	return o
}

// restricted reports whether node ports, and with them health checks, answer on some of the
// node's addresses only.
func restricted(c *config.Config) bool { return !c.Model().NodePortAddresses.All }

func (o *observers) all() []reconcile.Observer {
	list := []reconcile.Observer{o.tracker, o.metrics, o.services, o.localhost, &events.Problems{Recorder: o.events}}
	if o.flows != nil {
		list = append(list, o.flows)
	}
	if t := newStartThrift(); t != nil {
		list = append(list, t)
	}
	return list
}

// tasks are the observers' own goroutines.
func (o *observers) tasks() []task {
	list := []task{quiet(o.services.Run), quiet(o.localhost.Run), quiet(o.watchTable)}
	if o.flows != nil {
		list = append(list, quiet(o.flows.Run))
	}
	return list
}

func (o *observers) watchTable(ctx context.Context) {
	nodesetup.WatchTable(ctx, nodesetup.Options{}, func(used, limit int) {
		o.events.Node(events.Warning, events.ReasonConntrackNearlyFull, events.ActionStart,
			fmt.Sprintf("connection tracking has %d of at most %d entries: at the limit, new connections are dropped (conntrack.maxPerCore)", used, limit))
	})
}

func nftStats(b *kernel.Backend) func() [len(model.Families)]metrics.BackendStats {
	if b == nil {
		return nil
	}
	return func() (all [len(model.Families)]metrics.BackendStats) {
		for _, f := range model.Families {
			all[f] = metrics.BackendStats(b.Stats(f))
		}
		return all
	}
}

func localhostStats(f *localhost.Forwarder) func() [len(model.Families)]metrics.LocalhostStats {
	return func() (all [len(model.Families)]metrics.LocalhostStats) {
		for family, s := range f.Stats() {
			all[family] = metrics.LocalhostStats(s)
		}
		return all
	}
}

func conntrackTable() (entries, limit uint64, ok bool) {
	used, most, err := nodesetup.TableUse(nodesetup.Options{})
	return uint64(used), uint64(most), err == nil
}

// scrapeTimeout bounds the time of a scrape: Prometheus gives up after 10 s.
const scrapeTimeout = 8 * time.Second

func serviceConnections(b *kernel.Backend, log *slog.Logger) func() []metrics.ServiceCount {
	if b == nil {
		return nil
	}
	return func() []metrics.ServiceCount {
		ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
		defer cancel()
		counts, err := b.Connections(ctx)
		if err != nil {
			log.LogAttrs(ctx, slog.LevelDebug, "cannot count all connections", slog.Any("err", err))
		}
		list := make([]metrics.ServiceCount, 0, len(counts))
		for _, c := range counts {
			list = append(list, metrics.ServiceCount(c))
		}
		return list
	}
}
