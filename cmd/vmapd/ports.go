package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/httpserver"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/events"
	"github.com/vmapd/vmapd/sync/informer"
)

// ports are the daemon's two HTTP ports.
type ports struct {
	healthz, metrics *httpserver.Server
	// answers makes what the metrics port answers, for a configuration.
	answers func(*config.Config) http.Handler
	health  http.Handler
	log     *slog.Logger
}

func (d *daemon) openPorts(p *dataplane, o *observers, nodeName string) (*ports, error) {
	c := d.current.Load()
	port := httpserver.MetricsPort{
		Component: "vmapd", Metrics: o.metrics.Handler(), SLIs: o.metrics.SLIHandler(),
		ProxyMode: func() string { return p.name },
		Config: func() (kubeProxy, own any) {
			now := d.current.Load()
			return now.KubeProxy(), now.Own()
		},
		Flags:  func() map[string]string { return d.current.Load().FlagValues() },
		Status: func() httpserver.Status { return d.status(p, o, nodeName) },
		SetVerbosity: func(level int) {
			d.log.LogAttrs(context.Background(), slog.LevelInfo, "verbosity changed", slog.Int("v", level))
			d.level.Set(levelOf(level))
		},
	}
	probes := o.tracker.Handler()
	ps := &ports{
		log:    d.log,
		health: httpserver.HealthPort{Healthz: probes, Livez: probes, Readyz: probes}.Handler(),
		answers: func(c *config.Config) http.Handler {
			port.Profiling = c.EnableProfiling
			return port.Handler()
		},
	}
	failed := func(reason string) func(error) {
		return func(err error) { o.events.Node(events.Warning, reason, events.ActionStart, err.Error()) }
	}
	at, err := ps.metricsConfig(c)
	if err != nil {
		return nil, err
	}
	ps.metrics, err = httpserver.New(at, httpserver.Options{
		Name: "metrics", HardFail: c.BindAddressHardFail, Failed: failed(events.ReasonMetricsFailed), Log: d.log,
	})
	if err != nil {
		return nil, fmt.Errorf("metricsBindAddress: %w", err)
	}
	ps.healthz, err = httpserver.New(ps.healthConfig(c), httpserver.Options{
		Name: "healthz", HardFail: c.BindAddressHardFail, Failed: failed(events.ReasonHealthzFailed), Log: d.log,
	})
	if err != nil {
		return nil, fmt.Errorf("healthzBindAddress: %w", err)
	}
	return ps, nil
}

// addresses is where to listen; nowhere if the address is empty.
func addresses(a string) []string {
	if a == "" {
		return nil
	}
	return []string{a}
}

func (ps *ports) healthConfig(c *config.Config) httpserver.Config {
	return httpserver.Config{Addresses: addresses(c.HealthzBindAddress), Handler: ps.health}
}

// metricsConfig says how the metrics port is served.
func (ps *ports) metricsConfig(c *config.Config) (httpserver.Config, error) {
	at := httpserver.Config{Addresses: addresses(c.MetricsBindAddress), Handler: ps.answers(c)}
	if c.MetricsTLS.CertFile != "" {
		certificate, err := httpserver.LoadCertificate(c.MetricsTLS.CertFile, c.MetricsTLS.KeyFile, ps.log)
		if err != nil {
			return at, fmt.Errorf("metricsTLS: %w", err)
		}
		at.TLS = certificate.Config()
	}
	if c.MetricsAuthentication == config.TokenAuthentication {
		authorizer, err := newAuthorizer(c, ps.log)
		if err != nil {
			return at, fmt.Errorf("metricsAuthentication: %w", err)
		}
		at.Authorizer = authorizer
	}
	return at, nil
}

func newAuthorizer(c *config.Config, log *slog.Logger) (*httpserver.Authorizer, error) {
	if len(c.From) > 0 {
		return nil, errors.New("tokens are for a cluster's API server, and --from reads files")
	}
	client, err := informer.Connect(c.Client())
	if err != nil {
		return nil, err
	}
	return httpserver.NewAuthorizer(httpserver.AuthorizerOptions{Reviewer: client, Log: log}), nil
}

// set serves the ports as another configuration says, or changes neither.
func (ps *ports) set(c *config.Config) error {
	metrics, err := ps.metricsConfig(c)
	if err != nil {
		return err
	}
	health := ps.healthConfig(c)
	if err := health.Validate(); err != nil {
		return fmt.Errorf("healthzBindAddress: %w", err)
	}
	if err := ps.metrics.Set(metrics); err != nil {
		return fmt.Errorf("metricsBindAddress: %w", err)
	}
	return ps.healthz.Set(health)
}

func (d *daemon) status(p *dataplane, o *observers, nodeName string) httpserver.Status {
	s := o.tracker.Status()
	status := httpserver.Status{
		Started: d.started, Version: version(),
		Backend: p.name, Why: p.why, Node: nodeName, Ready: s.Ready,
	}
	for _, f := range model.Families {
		family := s.Families[f]
		sync := httpserver.Sync{Family: f.String(), Last: family.Synced}
		if family.LastError != "" {
			sync.Err = errors.New(family.LastError)
		}
		status.Syncs = append(status.Syncs, sync)
	}
	return status
}
