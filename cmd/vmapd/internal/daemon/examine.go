package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/buildinfo"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/doctor"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/batch"
	"github.com/vmapd/vmapd/nft/kernel"
)

// The least times between two examinations, and between two readings of all rules: for these, the kernel's table is
// compared, and other programs' chains are listed. Readings that take long are farther apart, readingShare times as
// long.
const examinedEvery, readEvery, readingShare = time.Second, 10 * time.Second, 50

// reading is what takes long to read.
type reading struct {
	table []report.Line
	rules doctor.Rules
	began time.Time
	took  time.Duration
}

// report returns the only report on this node: the last one or, if that is too old, another one, in which all rules
// have been read within an age, or with 0, now. Who asks during an examination gets the last report, and waits only for
// the first one.
func (d *Daemon) report(age time.Duration) doctor.Report {
	if !d.examining.TryLock() {
		if last := d.examined.Load(); last != nil {
			return *last
		}
		d.examining.Lock()
	}
	defer d.examining.Unlock()
	if last := d.examined.Load(); last != nil && time.Since(last.At) <= min(age, examinedEvery) {
		return *last
	}
	now := d.examine(age)
	d.examined.Store(&now)
	return now
}

// examine examines the node. It reads other programs' rules and settings: a panic about these must not end
// the daemon, and is a finding.
func (d *Daemon) examine(age time.Duration) (report doctor.Report) {
	defer func() {
		if reason := recover(); reason != nil {
			d.log.Error("doctor panicked",
				slog.String("reason", fmt.Sprint(reason)), slog.String("stack", string(debug.Stack())))
			report = doctor.Failed(time.Now(), d.nodeName, reason)
		}
	}()
	facts := d.facts()
	facts.Examine()
	if r := &d.read; age == 0 || time.Since(r.began) > max(age, readingShare*r.took) {
		r.began = time.Now()
		r.table, r.rules = d.table(), doctor.ReadRules()
		r.took = time.Since(r.began)
	}
	facts.Table, facts.Host.Rules = d.read.table, d.read.rules
	facts.At = time.Now()
	return doctor.Diagnose(facts)
}

// facts returns what the daemon knows about itself.
func (d *Daemon) facts() doctor.Facts {
	snapshot, traffic := d.view.View().Snapshot, d.config.Model()
	services, endpointSlices := d.in.state.Pending()
	self := &doctor.Daemon{
		Started: d.started, Why: d.dataplane.why, Pods: traffic.LocalPods, Health: d.tracker.Status(),
		Pending: services + endpointSlices, NodeUnread: snapshot == nil, Listeners: d.dataplane.listenerNotes(),
	}
	f := doctor.Facts{
		At: time.Now(), Version: buildinfo.Current().Version, Daemon: self,
		Wants:        doctor.WantsOf(d.config.Conntrack, traffic, snapshot),
		OtherProxies: slices.Sorted(maps.Values(d.dataplane.evidence.Current())),
		Leftovers:    d.dataplane.sweep.Remaining().String(), Unexamined: d.dataplane.sweep.Remaining().Unknown(),
	}
	f.Wants.NodeName, f.Wants.Backend = d.nodeName, d.dataplane.name
	if refused := d.refused.Load(); refused != nil {
		f.ConfigError = *refused
	}
	if snapshot != nil {
		self.Node, self.NodeObject = snapshot.Node(), snapshot.NodeObject()
		self.IsClusterIP = func(a netip.Addr) bool { return snapshot.Family(model.FamilyOf(a)).IsClusterIP(a) }
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
		self.Cluster = &doctor.Cluster{
			Address: source.Client.Address(), Failing: source.Failing(), Unread: source.Unread(),
		}
		self.Cluster.Skew, _ = source.Client.Skew()
		for _, at := range source.Heard() {
			if at.After(self.Cluster.Heard) {
				self.Cluster.Heard = at
			}
		}
		if slices.Contains(self.Cluster.Unread, "nodes") {
			self.NodeUnread = true // that the snapshot has no Node means nothing
		}
	}
	return f
}

// comparisons is how often tables are compared while they change.
const comparisons = 3

// compareTime is how long a comparison may take.
const compareTime = 20 * time.Second

// table compares the kernel's tables with the last snapshot that was applied.
func (d *Daemon) table() []report.Line {
	ctx, cancel := context.WithTimeout(context.Background(), compareTime)
	defer cancel()
	for range comparisons {
		snapshot := d.view.View().Snapshot
		if snapshot == nil {
			return doctor.NotCompared("nothing is programmed yet")
		}
		var differences []string
		var all int
		var errs []error
		for _, f := range model.Families {
			list, count, err := d.dataplane.differences(ctx, f, snapshot, nil)
			if err != nil {
				errs = append(errs, fmt.Errorf("%v: %w", f, err))
			}
			all, differences = all+count, append(differences, list...)
		}
		if all == 0 || snapshot == d.view.View().Snapshot {
			const few = 3
			return doctor.Compared(d.dataplane.name, differences[:min(few, len(differences))], all, errs)
		}
	}
	return doctor.NotCompared("the Services are changing constantly")
}

// differences returns the differences of the kernel's rules from a snapshot, as text, and their number. Of a decision,
// nftables and userspace return those alone that the connection meets.
func (p *dataplane) differences(
	ctx context.Context, f model.Family, s *model.Snapshot, of *model.Decision,
) (list []string, count int, err error) {
	switch {
	case p.userspace != nil:
		for vip, text := range p.userspace.Missing(f) {
			if of == nil || of.Frontend == nil || vip == of.Frontend.VIP {
				list = append(list, text)
			}
		}
		slices.Sort(list)
	case p.iptables != nil:
		list, err = p.iptables.Compare(ctx, f, s)
	case p.ipvs != nil:
		list, err = p.ipvs.Compare(ctx, f, s)
	default:
		diff, err := p.nft.Compare(f, s)
		if err != nil || diff == nil {
			return nil, 0, err
		}
		if rules := p.nft.Ruleset(f); rules != nil && of != nil && of.Frontend != nil {
			keepOf(diff, rules.OfPort(of.Port.Name))
		}
		for line := range strings.Lines(diff.String()) {
			if line = strings.TrimSpace(line); line != "" && !diff.Empty() {
				list = append(list, line)
			}
		}
		return list, diff.Len(), nil
	}
	return list, len(list), err
}

// keepOf removes operations for elements that a part of the table does not have. Others may concern all connections.
func keepOf(diff *batch.Batch, part *nft.Table) {
	for _, list := range [][]batch.SetOps{diff.Delete, diff.Add} {
		for i := range list {
			list[i].Ops = slices.DeleteFunc(list[i].Ops, func(op nft.Element) bool {
				_, is := part.Elements[list[i].Set][op.Key]
				return !is
			})
		}
	}
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
