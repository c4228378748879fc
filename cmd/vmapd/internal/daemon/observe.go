package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/component-base/metrics/prometheus/feature"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/doctor"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/metrics"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/nodesetup"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/status"
	"github.com/vmapd/vmapd/legacy/userspace"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/kernel"
	"github.com/vmapd/vmapd/sync/conntrack"
	"github.com/vmapd/vmapd/sync/events"
	"github.com/vmapd/vmapd/sync/health"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// observers are the observers of the loop: they serve metrics and probes, send events, delete
// stale flows from connection tracking, and listen for node ports on loopback.
type observers struct {
	metrics   *metrics.Metrics
	tracker   *health.Tracker
	services  *health.Services
	localhost *userspace.Forwarder // of node ports on loopback; the backend itself, if that is userspace
	listens   bool                 // the backend is userspace: it serves loopback
	events    *events.Recorder
	problems  *events.Problems
	flows     *conntrack.Reconciler // nil with IPVS, which has a connection table of its own
	node      *nodeCheck            // nil without a cluster

	view status.Recorder
}

// observe makes the observers. examined returns the lines of doctor, not older than a time.
func (d *base) observe(p *dataplane, in inputs, started time.Time, examined func(time.Duration) []report.Line) *observers {
	c := d.config
	o := &observers{events: d.events, problems: &events.Problems{Recorder: d.events}}
	o.localhost = userspace.New(userspace.Options{Scope: userspace.Loopback, Log: d.log, Failed: d.listenerFailed})
	if p.userspace != nil {
		o.localhost, o.listens = p.userspace, true
	}
	figures := metrics.Options{
		Backend: config.Backend(p.name), Reason: p.why, Started: started,
		Legacy: p.stats, Pending: in.state.Pending, Localhost: o.localhost.Stats,
		ForeignChanges: p.changes,
		Leftovers:      p.sweep.Counts,
		OtherProxy:     p.signs.Flags,
		Findings:       func() map[metrics.Finding]int { return findings(examined(examinedEvery)) },
		ConntrackTable: func() (int, int, error) { return nodesetup.TableUse(nodesetup.Options{}) },
	}
	if in.cluster != nil {
		figures.APIServerHeard = in.cluster.Heard
	}
	if p.nft != nil {
		figures.NFT = p.nft.Stats
		figures.ServiceConnections = func() []kernel.Count { return serviceConnections(p.nft, d.log) }
	}
	if p.userspace != nil && c.ServiceCounters {
		figures.ServiceConnections = p.listenerCounts
	}
	o.metrics = metrics.New(figures)
	for gate, on := range c.KubeProxy().FeatureGates {
		feature.RecordFeatureInfo(context.Background(), gate, "", on)
	}
	healthOf := health.Options{SyncPeriod: c.SyncPeriod(config.Backend(p.name)), Count: o.metrics.HTTP, Eligibility: d.tellEligibility}
	healthOf.Findings = func() (names []string) {
		for _, l := range report.Bad(examined(askedEvery)) {
			names = append(names, fmt.Sprintf("%s %s", l.Level, l.Name))
		}
		return names
	}
	if in.cluster != nil {
		healthOf.NodeName = in.cluster.NodeName
		healthOf.Unreadable = in.unreadable
		o.node = newNodeCheck(in.cluster, d.events, d.log)
	}
	o.tracker = health.NewTracker(healthOf)
	o.services = health.NewServices(health.ServicesOptions{
		Healthy: o.tracker.Healthy, Restricted: !c.Model().NodePortAddresses.All, Log: d.log,
		Failed: func(service model.NamespacedName, _ uint16, err error) {
			d.events.Service(service, events.Warning, events.ReasonServiceHealthFailed, err.Error())
		},
	})
	if p.name != string(config.IPVS) && p.userspace == nil {
		o.flows = conntrack.New(conntrack.Options{Log: d.log, Report: o.metrics.Conntrack})
	}
	return o
}

// findings counts the lines of an examination that are not ok, by check.
func findings(lines []report.Line) map[metrics.Finding]int {
	counts := map[metrics.Finding]int{}
	for _, check := range doctor.Checks() {
		for _, level := range []report.Level{report.Warn, report.Fail} {
			counts[metrics.Finding{Check: check, Level: string(level)}] = 0
		}
	}
	for _, l := range report.Bad(lines) {
		counts[metrics.Finding{Check: l.Name, Level: string(l.Level)}]++
	}
	return counts
}

// tellEligibility says whether load balancers may send new connections to this node.
func (d *base) tellEligibility(why string) {
	if why == "" {
		d.log.Info("the node is eligible for load balancers again")
		d.events.Node(events.Normal, events.ReasonNodeEligible, "load balancers may send new connections again")
		return
	}
	d.log.Warn("the node is not eligible for load balancers: /healthz answers 503", slog.String("reason", why))
	d.events.Node(events.Warning, events.ReasonNodeNotEligible,
		why+": /healthz answers 503, so that load balancers send no new connections; Services go on with the last known addresses")
}

func (o *observers) all() []reconcile.Observer {
	list := []reconcile.Observer{o.tracker, o.metrics, o.services, &o.view, o.problems}
	if !o.listens {
		list = append(list, loopback{o.localhost})
	}
	if o.flows != nil {
		list = append(list, o.flows)
	}
	if o.node != nil {
		list = append(list, o.node)
	}
	return list
}

// loopback lets a forwarder follow the rounds, also the failed ones: its listeners need no rules, so a
// family that can't be programmed is no reason to send clients to removed endpoints or to refuse
// those of a new Service.
type loopback struct{ *userspace.Forwarder }

// Done implements [reconcile.Observer].
func (l loopback) Done(r reconcile.Round) { l.Follow(r.Snapshot) }

// tasks are the tasks of the observers beside the loop.
func (o *observers) tasks() []task {
	list := []task{quiet(o.services.Run), quiet(o.problems.Run), quiet(o.localhost.Run), quiet(o.watchTable)}
	if o.flows != nil {
		list = append(list, quiet(o.flows.Run))
	}
	if o.node != nil {
		list = append(list, quiet(o.node.Run))
	}
	return list
}

func (o *observers) watchTable(ctx context.Context) {
	nodesetup.WatchTable(ctx, nodesetup.Options{}, func(used, limit int) {
		o.events.Node(events.Warning, events.ReasonConntrackNearlyFull,
			fmt.Sprintf("connection tracking has %d of at most %d entries: at the limit, new connections are dropped (conntrack.maxPerCore)", used, limit))
	})
}

// scrapeTimeout limits a scrape: Prometheus' default timeout is 10 s.
const scrapeTimeout = 8 * time.Second

// serviceConnections returns the counts of connections, as far as the kernel could be read.
func serviceConnections(b *kernel.Backend, log *slog.Logger) []kernel.Count {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	counts, err := b.Connections(ctx)
	if err != nil {
		log.LogAttrs(ctx, slog.LevelDebug, "could not read all counters of connections", slog.Any("err", err))
	}
	return counts
}
