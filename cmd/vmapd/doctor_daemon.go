package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/doctor"
	"github.com/vmapd/vmapd/model"
)

const (
	// examinedEvery is the least time between two examinations for metrics and pages: the rules of
	// others are read for each.
	examinedEvery = 30 * time.Second
	// doctorTries is the number of Services whose connections are followed, of each kind and family.
	doctorTries = 3
)

// examiner has the daemon's view of itself and of its node, for vmapd doctor, /statusz, metrics and
// the page. It takes no part in rounds.
type examiner struct {
	*daemon
	plane     *dataplane
	observers *observers
	in        inputs
	// Of serve, which sets them before any task runs.
	ports    *ports
	nodeName string

	mu      sync.Mutex
	last    doctor.Report
	at      time.Time     // of last; zero: there was none
	running chan struct{} // closed at the end of the examination that runs; nil: none does

	comparing sync.Mutex // held while tables are compared
}

// Lines returns the lines of the last examination at once, and begins another one if that is old. At
// first there are none.
func (e *examiner) Lines() []doctor.Line { return e.Report().Lines }

// Report is Lines with the time of the examination.
func (e *examiner) Report() doctor.Report {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.begin()
	return e.last
}

// begin begins an examination if the last one is old. It returns a channel that is closed when the one
// that runs ends, nil if none does. The caller holds mu.
func (e *examiner) begin() chan struct{} {
	if e.running == nil && time.Since(e.at) > examinedEvery {
		e.running = make(chan struct{})
		go e.examine()
	}
	return e.running
}

// Findings returns the lines that are not ok, of an examination that is not old: it waits for one for a
// little while.
func (e *examiner) Findings() []doctor.Line {
	e.mu.Lock()
	running := e.begin()
	e.mu.Unlock()
	if running != nil {
		select {
		case <-running:
		case <-time.After(pageWait):
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return doctor.Bad(e.last.Lines)
}

// pageWait is how long a page waits for an examination.
const pageWait = 2 * time.Second

func (e *examiner) examine() {
	view := e.view()
	facts := doctor.Facts{At: time.Now(), Version: version(), Daemon: view, Wants: view.Wants, Host: examineHost(view.Wants, false)}
	report := doctor.Diagnose(facts)
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.running)
	e.last, e.at, e.running = report, time.Now(), nil
}

// serve answers vmapd doctor, which examines the node by itself.
func (e *examiner) serve(ctx context.Context, _ url.Values) (any, error) {
	view := e.view()
	view.Table = e.compareTables(ctx)
	return view, nil
}

// view returns the daemon's own view, without the comparison of tables.
func (e *examiner) view() *doctor.Daemon {
	status := e.observers.tracker.Status()
	snapshot := e.observers.view.View().Snapshot
	services, endpointSlices := e.in.state.Pending()
	v := &doctor.Daemon{
		Version: version(), Started: e.started, NetAdmin: hasNetAdmin(), Why: e.plane.why, Pending: services + endpointSlices,
		OtherProxies: slices.Sorted(maps.Values(e.plane.rivals.current())), Leftovers: e.plane.sweep.remaining().String(),
		Wants: wantsOf(e.current.Load(), snapshot),
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
	v.Node = doctor.Node{Never: status.NoNode != "", NotEligible: status.Why}
	if snapshot != nil {
		v.Node.Known = snapshot.Node().Known
		v.Node.Addrs, v.Node.PodCIDRs = snapshot.NodeObject().Addrs, snapshot.NodeObject().PodCIDRs
		v.Node.NotEligible = snapshot.Node().Why
	}
	v.Cluster = e.cluster()
	return v
}

// cluster returns what is known about the API server, or nil without one.
func (e *examiner) cluster() *doctor.Cluster {
	source := e.in.cluster
	if source == nil {
		return nil
	}
	word := source.LastWord()
	c := &doctor.Cluster{Heard: word.At, Skew: word.Skew, Skewed: word.SkewKnown, Address: source.Client.Address()}
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
	case e.plane.nft == nil:
		return &doctor.Table{Skipped: fmt.Sprintf("with %s, the rules are compared and repaired each %v", e.plane.name, resyncInterval(e.current.Load(), config.Backend(e.plane.name)))}
	case !e.comparing.TryLock():
		return &doctor.Table{Skipped: "another comparison is under way"}
	}
	defer e.comparing.Unlock()
	var t *doctor.Table
	for range comparisons {
		t = e.compare(snapshot)
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

func (e *examiner) compare(s *model.Snapshot) *doctor.Table {
	const named = 3
	t := &doctor.Table{}
	for _, f := range model.Families {
		batch, err := e.plane.nft.Compare(f, s)
		switch {
		case err != nil:
			t.Error = fmt.Sprintf("%v: %v", f, err)
		case batch != nil && !batch.Empty():
			t.Count += batch.Len()
			for line := range strings.Lines(batch.String()) {
				if line = strings.TrimSpace(line); line != "" && len(t.Differences) < named {
					t.Differences = append(t.Differences, line)
				}
			}
		}
	}
	return t
}

// portErrors returns why the daemon's own ports are not served.
func (e *examiner) portErrors() []error {
	return slices.DeleteFunc([]error{e.ports.healthz.Err(), e.ports.metrics.Err()}, func(err error) bool { return err == nil })
}

// wantsOf returns what the node must meet, without the names of the node and the backend. The snapshot
// is nil before the first lists are read.
func wantsOf(c *config.Config, s *model.Snapshot) doctor.Wants {
	pods := c.Model().LocalPods
	w := doctor.Wants{PodsBy: podsBy(pods.Mode), Conntrack: c.Conntrack, ClusterCIDRs: pods.ClusterCIDRs}
	if s == nil {
		return w
	}
	for _, f := range model.Families {
		addTargets(&w, s.Family(f))
	}
	return w
}

// addTargets adds a few Services and local endpoints of a family.
func addTargets(w *doctor.Wants, s *model.FamilySnapshot) {
	w.ServicePorts[s.Family] = s.NumServicePorts()
	w.NodeAddrs = append(w.NodeAddrs, s.NodePortAddrs...)
	var pods []netip.Addr
	var clusterIPs, nodePorts []doctor.Target
	for sp := range s.ServicePorts() {
		for _, e := range sp.Endpoints {
			if len(pods) == doctorTries {
				break
			}
			if a := e.Addr.Addr(); e.Local && !slices.Contains(pods, a) && !slices.Contains(s.NodeAddrs, a) {
				pods = append(pods, a)
			}
		}
		if len(sp.Endpoints) == 0 {
			continue
		}
		for _, fe := range sp.Frontends {
			t := doctor.Target{Service: sp.Name.String(), Protocol: sp.Name.Protocol.String(), Addr: netip.AddrPortFrom(fe.VIP.Addr, fe.VIP.Port), Endpoint: sp.Endpoints[0].Addr}
			switch {
			case fe.Action != model.Forward:
			case fe.Kind == model.ClusterIP && len(clusterIPs) < doctorTries:
				clusterIPs = append(clusterIPs, t)
			case fe.Kind == model.NodePort && len(nodePorts) < doctorTries && len(s.NodePortAddrs) > 0:
				t.Addr = netip.AddrPortFrom(s.NodePortAddrs[0], fe.VIP.Port)
				nodePorts = append(nodePorts, t)
			}
		}
	}
	w.LocalPods = append(w.LocalPods, pods...)
	w.ClusterIPs = append(w.ClusterIPs, clusterIPs...)
	w.NodePorts = append(w.NodePorts, nodePorts...)
}

// podsBy returns kube-proxy's name of a mode.
func podsBy(m model.LocalPodsMode) string {
	return [...]string{
		model.ByClusterCIDR: "ClusterCIDR", model.ByNodeCIDR: "NodeCIDR", model.ByBridge: "BridgeInterface", model.ByInterfacePrefix: "InterfaceNamePrefix",
	}[m]
}
