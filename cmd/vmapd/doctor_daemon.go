package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/doctor"
	"github.com/vmapd/vmapd/model"
)

// fewPods is the number of endpoints on this node that doctor looks at, of each family.
const fewPods = 3

// examiner has the daemon's view of itself and of its node, for vmapd doctor, metrics and the
// page. It takes no part in rounds.
type examiner struct {
	*daemon
	plane     *dataplane
	observers *observers
	in        inputs
	server    serverVersion
	ports     *ports // of serve, which sets them before any task runs: their pages have metrics of the examiner

	reports

	comparing sync.Mutex // held while tables are compared
}

func newExaminer(d *daemon, p *dataplane, o *observers, in inputs) *examiner {
	e := &examiner{daemon: d, plane: p, observers: o, in: in}
	e.examines = e.examine
	return e
}

// examine examines the node. It reads the rules and settings of others: a panic about these must not end
// the daemon, and is a finding.
func (e *examiner) examine() (report doctor.Report) {
	defer func() {
		if reason := recover(); reason != nil {
			e.log.LogAttrs(context.Background(), slog.LevelError, "doctor panicked", slog.String("reason", fmt.Sprint(reason)), slog.String("stack", string(debug.Stack())))
			report = doctor.Failed(time.Now(), e.nodeName, reason)
		}
	}()
	e.askServer(context.Background(), pagesAskAfter)
	view := e.view()
	facts := doctor.Facts{At: time.Now(), Version: version(), Daemon: view, Wants: view.Wants, Host: doctor.Examine(view.Wants, false)}
	return doctor.Diagnose(facts)
}

// serverVersion is the version of the API server, and when it was asked for.
type serverVersion struct {
	mu    sync.Mutex
	text  string // the last answer, "" without any
	asked time.Time
}

const (
	// pagesAskAfter and commandsAskAfter are the ages of the API server's version from which it is asked
	// again: a cluster may have thousands of nodes, all of which are scraped.
	pagesAskAfter    = time.Hour
	commandsAskAfter = time.Minute
	// serverTime is how long the API server may take to tell its version.
	serverTime = 2 * time.Second
)

// askServer asks the API server for its version, if that is older than a time. It does not ask one that
// fails.
func (e *examiner) askServer(ctx context.Context, age time.Duration) {
	source := e.in.cluster
	if source == nil || len(source.Failing()) > 0 {
		return
	}
	e.server.mu.Lock()
	defer e.server.mu.Unlock()
	if !e.server.asked.IsZero() && time.Since(e.server.asked) < age {
		return
	}
	e.server.asked = time.Now()
	ctx, cancel := context.WithTimeout(ctx, serverTime)
	defer cancel()
	if text, err := source.Client.Version(ctx); err == nil {
		e.server.text = text
	}
}

// serve answers vmapd doctor, which examines the node by itself.
func (e *examiner) serve(ctx context.Context, _ url.Values) (any, error) {
	e.askServer(ctx, commandsAskAfter)
	return e.view(), nil
}

// serveTable compares tables for vmapd doctor.
func (e *examiner) serveTable(ctx context.Context, _ url.Values) (any, error) {
	return e.compareTables(ctx), nil
}

// view returns the daemon's own view.
func (e *examiner) view() *doctor.Daemon {
	status := e.observers.tracker.Status()
	snapshot := e.observers.view.View().Snapshot
	services, endpointSlices := e.in.state.Pending()
	v := &doctor.Daemon{
		Version: version(), Started: e.started, NetAdmin: doctor.HasNetAdmin(), Why: e.plane.why, Pending: services + endpointSlices,
		OtherProxies: slices.Sorted(maps.Values(e.plane.signs.Current())), Leftovers: e.plane.sweep.Remaining().String(),
		Wants: wantsOf(e.config, snapshot),
	}
	v.Wants.NodeName, v.Wants.Backend = e.nodeName, e.plane.name
	if refused := e.refused.Load(); refused != nil {
		v.ConfigError = *refused
	}
	for _, f := range model.Families {
		s := status.Families[f]
		v.Families = append(v.Families, doctor.Rounds{Family: f.String(), Synced: s.Synced, Waiting: s.Waiting, Error: s.LastError, Healthy: s.Healthy})
	}
	for _, err := range e.portErrors() {
		v.Ports = append(v.Ports, err.Error())
	}
	if e.config.HealthzBindAddress == "" {
		v.PortsOff = append(v.PortsOff, "health (--healthz-bind-address)")
	}
	if e.config.MetricsBindAddress == "" {
		v.PortsOff = append(v.PortsOff, "metrics (--metrics-bind-address)")
	}
	v.Node = doctor.Node{Unread: snapshot == nil, Never: status.NoNode != "", NotEligible: status.Why}
	if snapshot != nil {
		v.Node.Known = snapshot.Node().Known
		v.Node.Addrs, v.Node.PodCIDRs = snapshot.NodeObject().Addrs, snapshot.NodeObject().PodCIDRs
		v.Node.NotEligible = snapshot.Node().Why
	}
	v.FastPath, v.NoFastPath = e.plane.fastPath(e.config.FastPath.On(), &e.observers.flowLister)
	v.Cluster = e.cluster()
	if v.Cluster != nil && slices.Contains(v.Cluster.Unread, "nodes") { // its absence from the snapshot means nothing
		v.Node.Unread = true
	}
	return v
}

// cluster returns what is known about the API server, or nil without one.
func (e *examiner) cluster() *doctor.Cluster {
	source := e.in.cluster
	if source == nil {
		return nil
	}
	e.server.mu.Lock()
	server := e.server.text
	e.server.mu.Unlock()
	c := &doctor.Cluster{Server: server, Address: source.Client.Address(), Unread: source.Unread()}
	c.Skew, c.Skewed = source.Client.Skew()
	for _, at := range source.Heard() {
		if at.After(c.Heard) {
			c.Heard = at
		}
	}
	for _, f := range source.Failing() {
		err := f.Err
		if request, ok := errors.AsType[*url.Error](err); ok {
			err = request.Err // without the path, which the resource tells
		}
		c.Errors = append(c.Errors, doctor.APIError{Resource: f.Resource, Since: f.Since, Error: err.Error(), Remedy: f.Remedy})
	}
	return c
}

// compareTables compares the kernel's tables with the last snapshot that was applied.
func (e *examiner) compareTables(ctx context.Context) *doctor.Table {
	snapshot := e.observers.view.View().Snapshot
	switch {
	case snapshot == nil:
		return &doctor.Table{Skipped: "nothing is programmed yet"}
	case !e.comparing.TryLock():
		return &doctor.Table{Skipped: "another comparison is under way"}
	}
	defer e.comparing.Unlock()
	var t *doctor.Table
	for range comparisons {
		t = e.compare(ctx, snapshot)
		again := e.observers.view.View().Snapshot
		if t.Count == 0 || ctx.Err() != nil || again == snapshot {
			return t
		}
		snapshot = again // it changed meanwhile
	}
	t.Skipped = "the Services change all the time"
	return t
}

// comparisons is how often tables are compared while they change.
const comparisons = 3

func (e *examiner) compare(ctx context.Context, s *model.Snapshot) *doctor.Table {
	const named = 3
	t := &doctor.Table{}
	for _, f := range model.Families {
		list, count, err := e.plane.differences(ctx, f, s)
		if err != nil {
			t.Errors = append(t.Errors, fmt.Sprintf("%v: %v", f, err))
		}
		t.Count += count
		t.Differences = append(t.Differences, list[:min(len(list), named-len(t.Differences))]...)
	}
	return t
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

// portErrors returns why the daemon's own ports are not served.
func (e *examiner) portErrors() []error {
	return slices.DeleteFunc([]error{e.ports.healthz.Err(), e.ports.metrics.Err()}, func(err error) bool { return err == nil })
}

// wantsOf returns what the node must meet, without the names of the node and the backend. The snapshot
// is nil before the first lists are read.
func wantsOf(c *config.Config, s *model.Snapshot) doctor.Wants {
	pods := c.Model().LocalPods
	w := doctor.Wants{
		PodsBy: podsBy(pods.Mode), Conntrack: c.Conntrack, ClusterCIDRs: pods.ClusterCIDRs,
		MasqueradeAll: c.Model().MasqueradeAll,
	}
	if s == nil {
		return w
	}
	for _, f := range model.Families {
		addFamily(&w, s.Family(f))
	}
	return w
}

// addFamily adds what concerns a family.
func addFamily(w *doctor.Wants, s *model.FamilySnapshot) {
	w.ServicePorts[s.Family] = s.NumServicePorts()
	w.NodeAddrs = append(w.NodeAddrs, s.NodePortAddrs...)
	var pods []netip.Addr
	for sp := range s.ServicePorts() {
		for _, e := range sp.Endpoints {
			if len(pods) == fewPods {
				break
			}
			if a := e.Addr.Addr(); e.Local && !slices.Contains(pods, a) && !slices.Contains(s.NodeAddrs, a) {
				pods = append(pods, a)
			}
		}
	}
	w.LocalPods = append(w.LocalPods, pods...)
}

// podsBy returns kube-proxy's name of a mode.
func podsBy(m model.LocalPodsMode) string {
	return [...]string{
		model.ByClusterCIDR: "ClusterCIDR", model.ByNodeCIDR: "NodeCIDR", model.ByBridge: "BridgeInterface", model.ByInterfacePrefix: "InterfaceNamePrefix",
	}[m]
}
