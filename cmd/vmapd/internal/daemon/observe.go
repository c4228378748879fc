package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"k8s.io/component-base/metrics/prometheus/feature"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/doctor"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/leftovers"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/metrics"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/nodesetup"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/legacy/userspace"
	"github.com/vmapd/vmapd/sync/events"
	"github.com/vmapd/vmapd/sync/health"
)

func (d *Daemon) newMetrics(localhost *userspace.Forwarder) *metrics.Metrics {
	for gate, on := range d.Config.KubeProxy.FeatureGates {
		feature.RecordFeatureInfo(context.Background(), gate, "", on)
	}
	p := d.dataplane
	o := metrics.Options{
		Backend: config.Backend(p.name), Reason: p.why, Started: d.Started,
		Legacy: p.stats, Pending: d.state.Pending, Queued: d.state.Queued, Localhost: localhost.Stats,
		ConntrackTable: func() (int, int, error) { return nodesetup.TableUse(nodesetup.Options{}) },
		Findings:       func() map[metrics.Finding]int { return findings(d.report().Lines) },
	}
	if p.nft != nil {
		o.NFT, o.ServiceConnections = p.nft.Stats, p.nft.Connections
	}
	if d.cluster != nil {
		o.APIServerHeard = d.cluster.Heard
	}
	return metrics.New(o)
}

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

func (d *Daemon) newTracker() *health.Tracker {
	o := health.Options{
		SyncPeriod: d.Config.SyncPeriod, Queued: d.state.Queued, Count: d.metrics.HTTP, Eligibility: d.reportEligibility,
		Findings: func() (names []string) {
			for _, l := range report.Bad(d.report().Lines) {
				names = append(names, fmt.Sprintf("%s %s", l.Level, l.Name))
			}
			return names
		},
	}
	if d.cluster != nil {
		o.NodeName = d.cluster.NodeName
	}
	return health.NewTracker(o)
}

func (d *Daemon) reportEligibility(why string) {
	if why == "" {
		d.Log.Info("the node is eligible for load balancers again")
		d.events.Node(events.ReasonNodeEligible, "load balancers may send new connections again")
		return
	}
	d.Log.Warn("the node is not eligible for load balancers: /healthz answers 503", slog.String("reason", why))
	d.events.Node(events.ReasonNodeNotEligible, why+": /healthz answers 503, "+
		"so that load balancers send no new connections; Services go on with the last known addresses")
}

func (d *Daemon) newSweeper() *leftovers.Sweeper {
	look, p := leftovers.NewFinder(d.Config.IPVS()), d.dataplane
	look.RunsNFT, look.RunsIPVS, look.RunsUserspace = p.nft != nil, p.ipvs != nil, p.userspace != nil
	look.Rules = p.iptables
	return &leftovers.Sweeper{
		Find: look.All, Log: d.Log,
		Event: func(text string) { d.events.Node(events.ReasonLeftovers, text) },
	}
}

// noticed is a check of doctor with findings that are events about the Node, too.
type noticed struct {
	check, reason string
	level         report.Level // the least
	lasts         int          // in so many examinations, one after another
}

const (
	// lasting is the number of examinations with a finding, the last of which makes an event: a proxy that another one
	// replaces may need twenty seconds to end, and the kubelet of a node that has just booted to register the Node.
	lasting = 3
	// repeatEvent is the number of examinations between two events about a finding that lasts: half an hour.
	repeatEvent = 180
)

// noticedChecks are the checks with findings that are events.
func noticedChecks() []*noticed {
	return []*noticed{
		{check: "other-proxies", reason: events.ReasonOtherProxy, level: report.Fail},
		{check: "conntrack", reason: events.ReasonConntrackNearlyFull, level: report.Warn},
		{check: "node", reason: events.ReasonNoNode, level: report.Fail},
	}
}

// notice examines the node until ctx ends, and reports findings that last.
func (d *Daemon) notice(ctx context.Context) {
	checks := noticedChecks()
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(examineEvery):
		}
		all, hadNode := d.examine(false).Lines, d.tracker.Status().NoNode == ""
		for _, n := range checks {
			lines := all
			if n.check == "node" && hadNode { // other findings about the Node have no event, or another one
				lines = nil
			}
			d.noticeOne(n, lines)
		}
	}
}

func (d *Daemon) noticeOne(n *noticed, lines []report.Line) {
	i := slices.IndexFunc(lines, func(l report.Line) bool {
		return l.Name == n.check && report.Worse(l.Level, n.level) == l.Level
	})
	if n.lasts++; i < 0 {
		n.lasts = 0
	}
	if n.lasts%repeatEvent == lasting {
		d.Log.Warn("doctor has a finding", slog.String("check", n.check), slog.String("finding", lines[i].Text),
			slog.String("remedy", lines[i].Fix))
		d.events.Node(n.reason, lines[i].Text+": "+lines[i].Fix)
	}
}
