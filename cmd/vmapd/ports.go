package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/httpserver"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/metrics"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/events"
)

// ports are the daemon's two HTTP ports.
type ports struct{ healthz, metrics *httpserver.Server }

func (a *answers) openPorts() (*ports, error) {
	c, o := a.config, a.observers
	open := func(name string, serves httpserver.Config, reason string) (*httpserver.Server, error) {
		server, err := httpserver.New(serves, httpserver.Options{
			Name: name, HardFail: c.BindAddressHardFail, Log: a.log,
			Failed: func(err error) { o.events.Node(events.Warning, reason, err.Error()) },
		})
		if err != nil {
			return nil, fmt.Errorf("%sBindAddress: %w", name, err)
		}
		return server, nil
	}
	var ps ports
	var err error
	served := httpserver.Config{Addresses: []string{c.MetricsBindAddress}, Handler: a.pages().Handler()}
	if ps.metrics, err = open("metrics", served, events.ReasonMetricsFailed); err != nil {
		return nil, err
	}
	health := httpserver.Config{Addresses: []string{c.HealthzBindAddress}, Handler: o.tracker.Handler()}
	if ps.healthz, err = open("healthz", health, events.ReasonHealthzFailed); err != nil {
		return nil, err
	}
	return &ps, nil
}

// pages are the pages of the metrics port.
func (a *answers) pages() httpserver.MetricsPort {
	d, p, o := a.daemon, a.plane, a.observers
	return httpserver.MetricsPort{
		Metrics: o.metrics.Handler(), SLIs: o.metrics.SLIHandler(),
		ProxyMode: func() string { return p.name },
		Config:    func() (kubeProxy, own any) { return d.config.KubeProxy(), d.config.Own() },
		Flags:     d.config.FlagValues,
		Status:    func() httpserver.Status { return d.status(p, o, a.in, a.nodeName) },
		Page:      a.page(),
		Profiling: d.config.EnableProfiling,
		SetVerbosity: func(level int) {
			d.log.LogAttrs(context.Background(), slog.LevelInfo, "verbosity changed", slog.Int("v", level))
			d.level.Set(levelOf(level))
		},
	}
}

// signs returns a function that notes whether other processes listen on the two ports, of which the one for metrics has
// this address.
func (ps *ports) signs(r *rivals, metricsAddress string) func(context.Context) {
	taken := map[string]time.Time{} // since when, by sign
	return func(ctx context.Context) {
		for sign, server := range map[string]*httpserver.Server{signHealthzPort: ps.healthz, signMetricsPort: ps.metrics} {
			err := server.Err()
			switch {
			case !errors.Is(err, syscall.EADDRINUSE):
				delete(taken, sign)
				r.gone(sign)
			case taken[sign].IsZero():
				taken[sign] = time.Now()
			case time.Since(taken[sign]) > handOver:
				text := err.Error()
				if sign == signMetricsPort {
					text = describeOwner(ctx, metricsAddress, text)
				}
				r.seen(sign, text)
			}
		}
	}
}

// describeOwner returns text or, if a proxy answers at an address, a better one.
func describeOwner(ctx context.Context, address, text string) string {
	if mode := proxyMode(ctx, address); mode != "" {
		return fmt.Sprintf("a proxy with mode %s answers at %s", mode, address)
	}
	return text
}

// proxyMode asks a proxy for its mode, as kube-proxy tells it; "" if none answers.
func proxyMode(ctx context.Context, address string) string {
	const timeout, longest = time.Second, 16
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/proxyMode", nil)
	if err != nil {
		return ""
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	mode, err := io.ReadAll(io.LimitReader(response.Body, longest))
	if err != nil || !slices.Contains([]string{metrics.NFTables, metrics.IPTables, metrics.IPVS, metrics.Userspace}, string(mode)) {
		return ""
	}
	return string(mode)
}

func (d *daemon) status(p *dataplane, o *observers, in inputs, nodeName string) httpserver.Status {
	s := o.tracker.Status()
	status := httpserver.Status{
		Started: d.started, Version: version(),
		Backend: p.name, Why: p.why, Node: nodeName, NotEligible: s.Why, Ready: s.Ready,
		OtherProxies: slices.Sorted(maps.Values(p.rivals.current())), Leftovers: p.sweep.remaining().String(),
	}
	status.FastPath, _ = p.fastPath(d.config.FastPath.On(), &o.flowLister)
	for _, f := range model.Families {
		family := s.Families[f]
		status.Syncs = append(status.Syncs, httpserver.Sync{Family: f.String(), Last: metav1.NewTime(family.Synced), Err: family.LastError})
	}
	if s.NoNode != "" {
		status.Problems = append(status.Problems, fmt.Sprintf("the cluster has no Node %q", s.NoNode))
	}
	status.Problems = append(status.Problems, p.listenerNotes()...)
	if in.cluster != nil {
		for _, f := range in.cluster.Failing() {
			status.Problems = append(status.Problems, fmt.Sprintf("%s can't be read from the API server since %s (%s): %v",
				f.Resource, f.Since.UTC().Format(time.RFC3339), time.Since(f.Since).Round(time.Second), f.Err))
		}
	}
	for _, kind := range in.unread() {
		status.Problems = append(status.Problems, kind+" have not been read from the API server yet")
	}
	for _, l := range o.doctor.Findings() {
		status.Findings = append(status.Findings, fmt.Sprintf("%s %s: %s", l.Level, l.Check, l.Evidence))
	}
	return status
}
