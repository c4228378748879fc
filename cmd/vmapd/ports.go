package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"syscall"
	"time"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/httpserver"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/leftovers"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/metrics"
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
		Status:    func() httpserver.Status { return httpserver.Status{Started: d.started, Version: version()} },
		Profiling: d.config.EnableProfiling,
		SetVerbosity: func(level int) {
			d.log.LogAttrs(context.Background(), slog.LevelInfo, "verbosity changed", slog.Int("v", level))
			d.level.Set(levelOf(level))
		},
	}
}

// signs returns a function that notes whether other processes listen on the two ports, of which the one for metrics has
// this address.
func (ps *ports) signs(r *leftovers.Signs, metricsAddress string) func(context.Context) {
	taken := map[string]time.Time{} // since when, by sign
	return func(ctx context.Context) {
		for sign, server := range map[string]*httpserver.Server{leftovers.SignHealthzPort: ps.healthz, leftovers.SignMetricsPort: ps.metrics} {
			err := server.Err()
			switch {
			case !errors.Is(err, syscall.EADDRINUSE):
				delete(taken, sign)
				r.Gone(sign)
			case taken[sign].IsZero():
				taken[sign] = time.Now()
			case time.Since(taken[sign]) > leftovers.HandOver:
				text := err.Error()
				if sign == leftovers.SignMetricsPort {
					text = describeOwner(ctx, metricsAddress, text)
				}
				r.Seen(sign, text)
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
