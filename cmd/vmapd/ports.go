package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
		Metrics: o.metrics.Handler(), SLIs: o.metrics.SLIHandler(),
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
	ps := &ports{log: d.log, pages: pages, current: &config.Config{}, health: o.tracker.Handler()}
	open := func(name string, serves httpserver.Config, reason string) (*httpserver.Server, error) {
		server, err := httpserver.New(serves, httpserver.Options{
			Name: name, HardFail: c.BindAddressHardFail, Log: d.log,
			Failed: func(err error) { o.events.Node(events.Warning, reason, events.ActionStart, err.Error()) },
		})
		if err != nil {
			return nil, fmt.Errorf("%sBindAddress: %w", name, err)
		}
		return server, nil
	}
	metrics, err := ps.metricsConfig(c)
	if err != nil {
		return nil, err
	}
	ps.current, ps.served = c, metrics
	if ps.metrics, err = open("metrics", metrics, events.ReasonMetricsFailed); err != nil {
		return nil, err
	}
	if ps.healthz, err = open("healthz", ps.healthConfig(c), events.ReasonHealthzFailed); err != nil {
		return nil, err
	}
	return ps, nil
}

func (ps *ports) healthConfig(c *config.Config) httpserver.Config {
	return httpserver.Config{Addresses: []string{c.HealthzBindAddress}, Handler: ps.health}
}

// metricsConfig returns the configuration of the metrics port. It makes only those parts anew
// whose settings have changed: a certificate that was read and answers of the API server about
// tokens stay otherwise.
func (ps *ports) metricsConfig(c *config.Config) (httpserver.Config, error) {
	next, before := ps.served, ps.current
	next.Addresses = []string{c.MetricsBindAddress}
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
			client, err := informer.Connect(c.Client())
			if err != nil {
				return next, fmt.Errorf("metricsAuthentication: %w", err)
			}
			next.Authorizer = httpserver.NewAuthorizer(client, ps.log)
		}
	}
	return next, nil
}

// set applies another configuration to both ports, or to neither: the configuration has checked
// the health address already.
func (ps *ports) set(c *config.Config) error {
	metrics, err := ps.metricsConfig(c)
	if err != nil {
		return err
	}
	if err := ps.metrics.Set(metrics); err != nil {
		return fmt.Errorf("metricsBindAddress: %w", err)
	}
	ps.current, ps.served = c, metrics
	return ps.healthz.Set(ps.healthConfig(c))
}

func (d *daemon) status(p *dataplane, o *observers, nodeName string) httpserver.Status {
	s := o.tracker.Status()
	status := httpserver.Status{
		Started: d.started, Version: version(),
		Backend: p.name, Why: p.why, Node: nodeName, NotEligible: s.Why, Ready: s.Ready,
	}
	for _, f := range model.Families {
		family := s.Families[f]
		status.Syncs = append(status.Syncs, httpserver.Sync{Family: f.String(), Last: metav1.NewTime(family.Synced), Err: family.LastError})
	}
	return status
}
