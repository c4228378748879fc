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
	health           http.Handler
	pages            httpserver.MetricsPort
	log              *slog.Logger

	current *config.Config    // the configuration in force
	served  httpserver.Config // that of the metrics port, made from it
}

func (d *daemon) openPorts(p *dataplane, o *observers, nodeName string) (*ports, error) {
	c := d.current.Load()
	pages := httpserver.MetricsPort{
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
		log: d.log, pages: pages, current: &config.Config{},
		health: httpserver.HealthPort{Healthz: probes, Livez: probes, Readyz: probes}.Handler(),
	}
	failed := func(reason string) func(error) {
		return func(err error) { o.events.Node(events.Warning, reason, events.ActionStart, err.Error()) }
	}
	metrics, err := ps.metricsConfig(c)
	if err != nil {
		return nil, err
	}
	ps.current, ps.served = c, metrics
	ps.metrics, err = httpserver.New(metrics, httpserver.Options{
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

// addresses returns the addresses to listen on: none if a is empty.
func addresses(a string) []string {
	if a == "" {
		return nil
	}
	return []string{a}
}

func (ps *ports) healthConfig(c *config.Config) httpserver.Config {
	return httpserver.Config{Addresses: addresses(c.HealthzBindAddress), Handler: ps.health}
}

// metricsConfig returns the configuration of the metrics port. It makes only those parts anew
// whose settings have changed: a certificate that was read and answers of the API server about
// tokens stay otherwise.
func (ps *ports) metricsConfig(c *config.Config) (httpserver.Config, error) {
	next, before := ps.served, ps.current
	next.Addresses = addresses(c.MetricsBindAddress)
	if next.Handler == nil || c.EnableProfiling != before.EnableProfiling {
		pages := ps.pages
		pages.Profiling = c.EnableProfiling
		next.Handler = pages.Handler()
	}
	if c.MetricsTLS != before.MetricsTLS {
		next.TLS = nil
		if c.MetricsTLS.CertFile != "" {
			certificate, err := httpserver.LoadCertificate(c.MetricsTLS.CertFile, c.MetricsTLS.KeyFile, ps.log)
			if err != nil {
				return next, fmt.Errorf("metricsTLS: %w", err)
			}
			next.TLS = certificate.Config()
		}
	}
	if c.MetricsAuthentication != before.MetricsAuthentication {
		next.Authorizer = nil
		if c.MetricsAuthentication == config.TokenAuthentication {
			authorizer, err := newAuthorizer(c, ps.log)
			if err != nil {
				return next, fmt.Errorf("metricsAuthentication: %w", err)
			}
			next.Authorizer = authorizer
		}
	}
	return next, nil
}

func newAuthorizer(c *config.Config, log *slog.Logger) (*httpserver.Authorizer, error) {
	if len(c.From) > 0 {
		return nil, errors.New("the API server reviews tokens, and with --from there is none")
	}
	client, err := informer.Connect(c.Client())
	if err != nil {
		return nil, err
	}
	return httpserver.NewAuthorizer(httpserver.AuthorizerOptions{Reviewer: client, Log: log}), nil
}

// set applies another configuration to both ports, or to neither.
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
	ps.current, ps.served = c, metrics
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
