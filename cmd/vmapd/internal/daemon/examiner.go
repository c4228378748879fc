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
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/buildinfo"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/doctor"
	"github.com/vmapd/vmapd/model"
)

// examiner has the daemon's view of itself and of its node, for vmapd doctor, metrics and the
// page. It takes no part in rounds.
type examiner struct {
	*base
	plane     *dataplane
	observers *observers
	in        inputs
	ports     *ports
	started   time.Time

	mu   sync.Mutex // held during an examination
	last atomic.Pointer[doctor.Report]
}

// examinedEvery is the least time between two examinations for metrics: all chains of nftables are listed for each.
// askedEvery is the same for what people ask.
const examinedEvery, askedEvery = 30 * time.Second, time.Second

// report returns the last report or, if that is older than a time, another one. Who asks during an examination gets
// the last report, and waits only for the first one.
func (e *examiner) report(age time.Duration) doctor.Report {
	if !e.mu.TryLock() {
		if last := e.last.Load(); last != nil {
			return *last
		}
		e.mu.Lock()
	}
	defer e.mu.Unlock()
	if last := e.last.Load(); last != nil && time.Since(last.At) <= age {
		return *last
	}
	now := e.examine()
	e.last.Store(&now)
	return now
}

// examine examines the node. It reads the rules and settings of others: a panic about these must not end
// the daemon, and is a finding.
func (e *examiner) examine() (report doctor.Report) {
	defer func() {
		if reason := recover(); reason != nil {
			e.log.LogAttrs(context.Background(), slog.LevelError, "doctor panicked",
				slog.String("reason", fmt.Sprint(reason)), slog.String("stack", string(debug.Stack())))
			report = doctor.Failed(time.Now(), e.nodeName, reason)
		}
	}()
	answer := e.self().Answer(buildinfo.Current().String())
	facts := doctor.Facts{At: time.Now(), Version: buildinfo.Current().String(), Daemon: &answer, Wants: answer.Wants}
	facts.Examine(false)
	return doctor.Diagnose(facts)
}

// serve answers vmapd doctor, which examines the node by itself.
func (e *examiner) serve(context.Context, url.Values) (any, error) {
	return e.self().Answer(buildinfo.Current().String()), nil
}

// self returns what the daemon knows about itself.
func (e *examiner) self() *doctor.Daemon {
	snapshot := e.observers.view.View().Snapshot
	services, endpointSlices := e.in.state.Pending()
	d := &doctor.Daemon{
		Wants: doctor.WantsOf(e.config.Conntrack, e.config.Model(), snapshot), Started: e.started, NetAdmin: doctor.HasNetAdmin(), Why: e.plane.why,
		Health: e.observers.tracker.Status(), Pending: services + endpointSlices, NodeUnread: snapshot == nil,
		HostAddrs: doctor.HostAddrs(), Pods: e.config.Model().LocalPods,
		OtherProxies: slices.Sorted(maps.Values(e.plane.signs.Current())), Leftovers: e.plane.sweep.Remaining().String(),
	}
	d.Wants.NodeName, d.Wants.Backend = e.nodeName, e.plane.name
	if refused := e.refused.Load(); refused != nil {
		d.ConfigError = *refused
	}
	if snapshot != nil {
		d.Node, d.NodeObject = snapshot.Node(), snapshot.NodeObject()
	}
	for _, err := range []error{e.ports.healthz.Err(), e.ports.metrics.Err()} {
		if err != nil {
			d.Ports = append(d.Ports, err)
		}
	}
	d.FastPath, d.NoFastPath = e.plane.fastPath(e.config.FastPath.On())
	if source := e.in.cluster; source != nil {
		skew, _ := source.Client.Skew()
		d.Cluster = &doctor.Cluster{
			Address: source.Client.Address(), Skew: skew, Failing: source.Failing(), Unread: source.Unread(),
		}
		for _, at := range source.Heard() {
			if at.After(d.Cluster.Heard) {
				d.Cluster.Heard = at
			}
		}
		d.NodeUnread = d.NodeUnread || slices.Contains(d.Cluster.Unread, "nodes") // its absence from the snapshot means nothing
	}
	return d
}

// comparisons is how often tables are compared while they change.
const comparisons = 3

// serveTable compares the kernel's tables with the last snapshot that was applied.
func (e *examiner) serveTable(ctx context.Context, _ url.Values) (any, error) {
	for range comparisons {
		snapshot := e.observers.view.View().Snapshot
		if snapshot == nil {
			return doctor.NotCompared("nothing is programmed yet"), nil
		}
		var differences []string
		var all int
		var errs []error
		for _, f := range model.Families {
			list, count, err := e.plane.differences(ctx, f, snapshot)
			if err != nil {
				errs = append(errs, fmt.Errorf("%v: %w", f, err))
			}
			all, differences = all+count, append(differences, list...)
		}
		if all == 0 || snapshot == e.observers.view.View().Snapshot {
			const few = 3
			return doctor.Compared(e.plane.name, differences[:min(few, len(differences))], all, errs), nil
		}
	}
	return doctor.NotCompared("the Services change all the time"), nil
}

// differences returns the differences of the kernel's rules from a snapshot, as text, and their number.
func (p *dataplane) differences(ctx context.Context, f model.Family, s *model.Snapshot) (list []string, count int, err error) {
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
