package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/buildinfo"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/doctor"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/leftovers"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/model"
)

// examineEvery is the time between two examinations. All rules, for which the kernel's table is compared, and other
// programs' chains are listed, are read only if somebody has asked for a report meanwhile, and less often where that
// takes long: readingShare times as long.
const examineEvery, readingShare = 10 * time.Second, 50

// reading is what takes long to read.
type reading struct {
	table doctor.Comparison
	rules doctor.Rules
	began time.Time
	took  time.Duration
}

// report returns the last report on this node, and makes the first one.
func (d *Daemon) report() doctor.Report {
	d.asked.Store(true)
	if last := d.examined.Load(); last != nil {
		return *last
	}
	return d.examine(false)
}

// examine examines the node, and keeps the report; with all, it reads all rules again. It reads other programs' rules
// and settings: a panic about these must not end the daemon, and is a finding.
func (d *Daemon) examine(all bool) (r doctor.Report) {
	d.examining.Lock()
	defer d.examining.Unlock()
	defer func() {
		if reason := recover(); reason != nil {
			d.Log.Error("doctor panicked",
				slog.String("reason", fmt.Sprint(reason)), slog.String("stack", string(debug.Stack())))
			r = doctor.Report{Node: d.nodeName, At: time.Now(), Level: report.Fail, Lines: []report.Line{{
				Level: report.Fail, Name: "doctor", Text: fmt.Sprintf("doctor failed: %v", reason),
				Fix: "this is a bug in vmapd: report it, with the line of the log that has the stack",
			}}}
		}
		d.examined.Store(&r)
	}()
	facts := d.facts()
	facts.Examine()
	asked := d.asked.Swap(false)
	if last := &d.read; all || asked && time.Since(last.began) > max(examineEvery, readingShare*last.took) {
		last.began = time.Now()
		last.table, last.rules = d.table(), doctor.ReadRules()
		last.took = time.Since(last.began)
	}
	facts.Table, facts.Host.Rules = d.read.table, d.read.rules
	facts.At = time.Now()
	return doctor.Diagnose(facts)
}

func (d *Daemon) facts() doctor.Facts {
	snapshot, traffic := d.view.View().Snapshot, d.Config.Model()
	services, endpointSlices := d.state.Pending()
	self := &doctor.Daemon{
		Started: d.Started, Why: d.dataplane.why, Pods: traffic.LocalPods, Health: d.tracker.Status(),
		Pending: services + endpointSlices, NodeUnread: snapshot == nil, Listeners: d.dataplane.listenerNotes(),
	}
	f := doctor.Facts{
		Version: buildinfo.Current().Version, Daemon: self,
		Wants: doctor.WantsOf(d.Config.KubeProxy.Conntrack, traffic, snapshot),
	}
	found, cameBack, err := d.sweeper.Left()
	if f.Unexamined = err; cameBack {
		f.OtherProxies = append(f.OtherProxies, "objects came back after they had been removed: "+found.String())
	} else {
		f.Leftovers = found.String()
	}
	if errors.Is(d.metricsPort.Err(), syscall.EADDRINUSE) {
		if proxy := leftovers.Answering(d.Config.KubeProxy.MetricsBindAddress); proxy != "" {
			f.OtherProxies = append(f.OtherProxies, proxy)
		}
	}
	f.Wants.NodeName, f.Wants.Backend = d.nodeName, d.dataplane.name
	if refused := d.refused.Load(); refused != nil && *refused != nil {
		f.ConfigError = (*refused).Error()
	}
	if snapshot != nil {
		self.Node, self.NodeObject = snapshot.Node, snapshot.NodeObject
		for _, p := range snapshot.Problems { // sorted by object
			if p.Budget != "" && p.Budget != model.ProblemsBudget {
				self.OverLimit = append(self.OverLimit, p.Object)
			}
		}
		self.OverLimit = slices.Compact(self.OverLimit)
		self.IsClusterIP = func(a netip.Addr) bool { return snapshot.Family(model.FamilyOf(a)).IsClusterIP(a) }
	}
	self.Ports = slices.DeleteFunc([]error{d.healthzPort.Err(), d.metricsPort.Err()},
		func(err error) bool { return err == nil })
	self.FastPath = d.dataplane.fastPath(d.Config.FastPath.On())
	if p := d.dataplane.nft; p != nil && traffic.ConnectionRetry {
		self.Retry.Text = "without an answer within a second, the kernel chooses another endpoint"
		if err := p.RetryLacks(); err != nil {
			self.Retry = doctor.Ability{Text: err.Error(), Lacks: true}
		}
	}
	if source := d.cluster; source != nil {
		self.Cluster = &doctor.Cluster{
			Address: source.Client.Address(), Failing: source.Failing(), Unread: source.Unread(),
		}
		self.Cluster.Skew, _ = source.Client.Skew()
		for _, at := range source.Heard() {
			if at.After(self.Cluster.Heard) {
				self.Cluster.Heard = at
			}
		}
	}
	return f
}

const compareTime = 20 * time.Second

// table compares the kernel's tables with the last snapshot that was applied.
func (d *Daemon) table() (c doctor.Comparison) {
	ctx, cancel := context.WithTimeout(context.Background(), compareTime)
	defer cancel()
	snapshot := d.view.View().Snapshot
	if snapshot == nil {
		return doctor.Comparison{Not: "nothing is programmed yet"}
	}
	for _, f := range model.Families {
		list, err := d.dataplane.Compare(ctx, f, snapshot, nil)
		if err != nil {
			c.Errs = append(c.Errs, fmt.Errorf("%v: %w", f, err))
		}
		c.Differences = append(c.Differences, list...)
	}
	if len(c.Differences) > 0 && snapshot != d.view.View().Snapshot {
		return doctor.Comparison{Not: "the Services changed meanwhile"}
	}
	return c
}

// fastPath says whether connections take the fast path, and by which devices.
func (p *dataplane) fastPath(wanted bool) (a doctor.Ability) {
	switch {
	case !wanted:
		return a
	case p.nft == nil:
		return doctor.Ability{Text: fmt.Sprintf("not possible: the backend %s has none", p.name), Lacks: true}
	}
	var parts []string
	for _, f := range p.nft.FastPaths() {
		text := fmt.Sprintf("%v: on, with %s (%s)", f.Family,
			report.Plural(len(f.Devices), "device"), report.List(f.Devices, 5))
		if f.Lacks != nil {
			text = fmt.Sprintf("%v: not possible: %v", f.Family, f.Lacks)
		} else if f.Refused != nil {
			text += fmt.Sprintf("; %v", f.Refused)
		}
		parts, a.Lacks = append(parts, text), a.Lacks || f.Lacks != nil || f.Refused != nil
	}
	a.Text = strings.Join(parts, "; ")
	return a
}
