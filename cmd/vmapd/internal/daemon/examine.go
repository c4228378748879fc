package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/buildinfo"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/doctor"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/kernel"
)

// examinedEvery is the least time between two examinations for metrics: all chains of nftables are listed for each.
// askedEvery is the same for what people ask.
const examinedEvery, askedEvery = 30 * time.Second, time.Second

// report returns the last report or, if that is older than a time, another one. Who asks during an examination gets
// the last report, and waits only for the first one.
func (d *Daemon) report(age time.Duration) doctor.Report {
	if !d.examining.TryLock() {
		if last := d.examined.Load(); last != nil {
			return *last
		}
		d.examining.Lock()
	}
	defer d.examining.Unlock()
	if last := d.examined.Load(); last != nil && time.Since(last.At) <= age {
		return *last
	}
	now := d.examine()
	d.examined.Store(&now)
	return now
}

// examine examines the node. It reads other programs' rules and settings: a panic about these must not end
// the daemon, and is a finding.
func (d *Daemon) examine() (report doctor.Report) {
	defer func() {
		if reason := recover(); reason != nil {
			d.log.Error("doctor panicked",
				slog.String("reason", fmt.Sprint(reason)), slog.String("stack", string(debug.Stack())))
			report = doctor.Failed(time.Now(), d.nodeName, reason)
		}
	}()
	answer := d.self()
	facts := doctor.Facts{At: time.Now(), Version: answer.Version, Daemon: &answer, Wants: answer.Wants}
	facts.Examine(false)
	return doctor.Diagnose(facts)
}

// doctor answers vmapd doctor, which examines the node by itself.
func (d *Daemon) doctor(context.Context, url.Values) (any, error) { return d.self(), nil }

// self returns what the daemon knows about itself.
func (d *Daemon) self() doctor.Answer {
	snapshot, traffic := d.view.View().Snapshot, d.config.Model()
	services, endpointSlices := d.in.state.Pending()
	self := &doctor.Daemon{
		Wants: doctor.WantsOf(d.config.Conntrack, traffic, snapshot), Started: d.started,
		NetAdmin: doctor.HasNetAdmin(), HostAddrs: doctor.HostAddrs(), Why: d.dataplane.why, Pods: traffic.LocalPods,
		Health: d.tracker.Status(), Pending: services + endpointSlices, NodeUnread: snapshot == nil,
		OtherProxies: slices.Sorted(maps.Values(d.dataplane.evidence.Current())),
		Leftovers:    d.dataplane.sweep.Remaining().String(), Unexamined: d.dataplane.sweep.Remaining().Unknown(),
	}
	self.Wants.NodeName, self.Wants.Backend = d.nodeName, d.dataplane.name
	if refused := d.refused.Load(); refused != nil {
		self.ConfigError = *refused
	}
	if snapshot != nil {
		self.Node, self.NodeObject = snapshot.Node(), snapshot.NodeObject()
	}
	self.Ports = slices.DeleteFunc([]error{d.ports.healthz.Err(), d.ports.metrics.Err()},
		func(err error) bool { return err == nil })
	self.FastPath, self.NoFastPath = d.dataplane.fastPath(d.config.FastPath.On())
	if p := d.dataplane.nft; p != nil && traffic.ConnectionRetry {
		self.Retry = "without an answer within a second, the kernel chooses another endpoint"
		if err := p.RetryLacks(); err != nil {
			self.Retry, self.NoRetry = err.Error(), true
		}
	}
	if source := d.in.cluster; source != nil {
		skew, _ := source.Client.Skew()
		self.Cluster = &doctor.Cluster{
			Address: source.Client.Address(), Skew: skew, Failing: source.Failing(), Unread: source.Unread(),
		}
		for _, at := range source.Heard() {
			if at.After(self.Cluster.Heard) {
				self.Cluster.Heard = at
			}
		}
		if slices.Contains(self.Cluster.Unread, "nodes") {
			self.NodeUnread = true // that the snapshot has no Node means nothing
		}
	}
	return self.Answer(buildinfo.Current().Version)
}

// comparisons is how often tables are compared while they change.
const comparisons = 3

// doctorTable compares the kernel's tables with the last snapshot that was applied.
func (d *Daemon) doctorTable(ctx context.Context, _ url.Values) (any, error) {
	for range comparisons {
		snapshot := d.view.View().Snapshot
		if snapshot == nil {
			return doctor.NotCompared("nothing is programmed yet"), nil
		}
		var differences []string
		var all int
		var errs []error
		for _, f := range model.Families {
			list, count, err := d.dataplane.differences(ctx, f, snapshot)
			if err != nil {
				errs = append(errs, fmt.Errorf("%v: %w", f, err))
			}
			all, differences = all+count, append(differences, list...)
		}
		if all == 0 || snapshot == d.view.View().Snapshot {
			const few = 3
			return doctor.Compared(d.dataplane.name, differences[:min(few, len(differences))], all, errs), nil
		}
	}
	return doctor.NotCompared("the Services are changing constantly"), nil
}

// differences returns the differences of the kernel's rules from a snapshot, as text, and their number.
func (p *dataplane) differences(
	ctx context.Context, f model.Family, s *model.Snapshot,
) (list []string, count int, err error) {
	switch {
	case p.userspace != nil:
		list = p.userspace.Compare(f)
	case p.iptables != nil:
		list, err = p.iptables.Compare(ctx, f, s)
	case p.ipvs != nil:
		list, err = p.ipvs.Compare(ctx, f, s)
	default:
		batch, err := p.nft.Compare(f, s)
		if err != nil || batch == nil || batch.Empty() {
			return nil, 0, err
		}
		for line := range strings.Lines(batch.String()) {
			if line = strings.TrimSpace(line); line != "" {
				list = append(list, line)
			}
		}
		return list, batch.Len(), nil
	}
	return list, len(list), err
}

// fastPath says whether connections take the fast path, and by which devices; "" if nobody wants that. lacks reports
// whether some that should can't.
func (p *dataplane) fastPath(wanted bool) (text string, lacks bool) {
	if !wanted {
		return "", false
	}
	if p.nft == nil {
		return fmt.Sprintf("not possible: the backend %s has none", p.name), true
	}
	var parts []string
	for _, f := range p.nft.FastPaths() {
		part, bad := fastPathOf(f)
		parts, lacks = append(parts, part), lacks || bad
	}
	if len(parts) == 2 && strings.TrimPrefix(parts[0], "IPv4: ") == strings.TrimPrefix(parts[1], "IPv6: ") {
		parts = []string{"IPv4 and " + parts[1]}
	}
	return strings.Join(parts, "; "), lacks
}

func fastPathOf(f kernel.FastPath) (text string, lacks bool) {
	switch {
	case f.Lacks != nil:
		return fmt.Sprintf("%v: not possible: %v", f.Family, f.Lacks), true
	case f.Refused != nil:
		return fmt.Sprintf("%v: %s; %v", f.Family, devicesText(f.Devices), f.Refused), true
	case len(f.Devices) == 0:
		return fmt.Sprintf("%v: on, with no device yet", f.Family), false
	}
	return fmt.Sprintf("%v: on, with %s", f.Family, devicesText(f.Devices)), false
}

// devicesText names a few devices, and says how many there are.
func devicesText(names []string) string {
	const named = 5
	return fmt.Sprintf("%d devices (%s)", len(names), report.List(names, named))
}
