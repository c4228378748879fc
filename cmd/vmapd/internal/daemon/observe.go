package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"k8s.io/component-base/metrics/prometheus/feature"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/doctor"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/httpserver/connlimit"
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
	metrics *metrics.Metrics
	tracker *health.Tracker
	view    *status.Recorder
	all     []reconcile.Observer // these, and more
	beside  []task               // what they do beside the loop
}

// observe makes the observers. examined returns the lines of doctor.
func (d *base) observe(
	p *dataplane, in inputs, started time.Time, examined func() []report.Line,
) *observers {
	localhost := p.userspace // it serves loopback, too
	if localhost == nil {
		localhost = userspace.New(userspace.Options{Loopback: true, Log: d.log, Failed: d.listenerFailed})
	}
	figures := d.figures(p, started)
	figures.Pending, figures.Localhost = in.state.Pending, localhost.Stats
	figures.Findings = func() map[metrics.Finding]int { return findings(examined()) }
	healthOf := health.Options{SyncPeriod: d.config.SyncPeriod(), Eligibility: d.reportEligibility}
	healthOf.Findings = func() (names []string) {
		for _, l := range report.Bad(examined()) {
			names = append(names, fmt.Sprintf("%s %s", l.Level, l.Name))
		}
		return names
	}
	if in.cluster != nil {
		figures.APIServerHeard = in.cluster.Heard
		healthOf.NodeName, healthOf.Unreadable = in.cluster.NodeName, in.unreadable
	}
	m := metrics.New(figures)
	healthOf.Count = m.HTTP
	tracker, view, problems := health.NewTracker(healthOf), new(status.Recorder), &events.Problems{Recorder: d.events}
	services := health.NewServices(health.ServicesOptions{
		Serve: func(s *http.Server, l net.Listener) error {
			const most = 128
			return connlimit.Serve(s, connlimit.New(l, most))
		},
		Healthy: tracker.Healthy, Restricted: !d.config.Model().NodePortAddresses.All, Log: d.log,
		Failed: func(service model.NamespacedName, _ uint16, err error) {
			d.events.Service(service, events.Warning, events.ReasonServiceHealthFailed, err.Error())
		},
	})
	o := &observers{
		metrics: m, tracker: tracker, view: view,
		all:    []reconcile.Observer{tracker, m, services, view, problems},
		beside: []task{noError(services.Run), noError(problems.Run), noError(localhost.Run), noError(d.watchTable)},
	}
	if p.userspace == nil {
		o.all = append(o.all, loopback{localhost})
	}
	if p.userspace == nil && p.ipvs == nil { // which has a connection table of its own
		flows := conntrack.New(conntrack.Options{Log: d.log, Table: new(conntrack.Table), Report: m.Conntrack})
		o.all, o.beside = append(o.all, flows), append(o.beside, noError(flows.Run))
	}
	o.all = append(o.all, &nodeCheck{base: d})
	return o
}

// figures are the metrics of a backend and of the node.
func (d *base) figures(p *dataplane, started time.Time) metrics.Options {
	for gate, on := range d.config.KubeProxy().FeatureGates {
		feature.RecordFeatureInfo(context.Background(), gate, "", on)
	}
	o := metrics.Options{
		Backend: config.Backend(p.name), Reason: p.why, Started: started,
		Legacy: p.stats, ForeignChanges: p.changes, Leftovers: p.sweep.Counts, OtherProxy: p.evidence.Flags,
		ConntrackTable: func() (int, int, error) { return nodesetup.TableUse(nodesetup.Options{}) },
	}
	if p.nft != nil {
		o.NFT = p.nft.Stats
		o.ServiceConnections = func() []kernel.Count { return serviceConnections(p.nft, d.log) }
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

// reportEligibility reports whether load balancers may send new connections to this node.
func (d *base) reportEligibility(why string) {
	if why == "" {
		d.log.Info("the node is eligible for load balancers again")
		d.events.Node(events.Normal, events.ReasonNodeEligible, "load balancers may send new connections again")
		return
	}
	d.log.Warn("the node is not eligible for load balancers: /healthz answers 503", slog.String("reason", why))
	d.events.Node(events.Warning, events.ReasonNodeNotEligible, why+": /healthz answers 503, "+
		"so that load balancers send no new connections; Services go on with the last known addresses")
}

// loopback lets a forwarder follow the rounds, also the failed ones: its listeners need no rules, so a family that
// can't be programmed is no reason to send clients to removed endpoints or to refuse those of a new Service.
type loopback struct{ *userspace.Forwarder }

// Done implements [reconcile.Observer].
func (l loopback) Done(r reconcile.Round) {
	_ = l.Apply(context.Background(), r.Snapshot) // an error is about addresses, and it sets none
}

// watchTable warns of a connection tracking table that is nearly full, until ctx ends.
func (d *base) watchTable(ctx context.Context) {
	nodesetup.WatchTable(ctx, nodesetup.Options{}, func(used, limit int) {
		d.events.Node(events.Warning, events.ReasonConntrackNearlyFull,
			fmt.Sprintf("connection tracking has %d of at most %d entries: at the limit, new connections are dropped "+
				"(conntrack.maxPerCore)", used, limit))
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
		log.Debug("could not read all counters of connections", slog.Any("err", err))
	}
	return counts
}
