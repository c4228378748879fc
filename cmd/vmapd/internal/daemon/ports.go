package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"syscall"
	"time"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/buildinfo"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/httpserver"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/leftovers"
	"github.com/vmapd/vmapd/sync/events"
)

// ports are the daemon's two HTTP ports.
type ports struct{ healthz, metrics *httpserver.Server }

// openPorts makes the ports, on which nothing listens yet.
func (d *base) openPorts(p *dataplane, o *observers, of Options) (*ports, error) {
	c := d.config
	open := func(name, address string, handler http.Handler, reason string) (*httpserver.Server, error) {
		server, err := httpserver.New(httpserver.Options{
			Name: name, Address: address, Handler: handler, HardFail: c.BindAddressHardFail, Log: d.log,
			Failed: func(err error) { d.events.Node(events.Warning, reason, err.Error()) },
		})
		if err != nil {
			return nil, fmt.Errorf("%sBindAddress: %w", name, err)
		}
		return server, nil
	}
	metricsPort, err := open("metrics", c.MetricsBindAddress, d.pages(p, o, of).Handler(), events.ReasonMetricsFailed)
	if err != nil {
		return nil, err
	}
	healthz, err := open("healthz", c.HealthzBindAddress, o.tracker.Handler(), events.ReasonHealthzFailed)
	if err != nil {
		return nil, err
	}
	return &ports{healthz, metricsPort}, nil
}

// pages are the pages of the metrics port.
func (d *base) pages(p *dataplane, o *observers, of Options) httpserver.MetricsPort {
	return httpserver.MetricsPort{
		Metrics: o.metrics.Handler, SLIs: o.metrics.SLIs,
		ProxyMode: func() string { return p.name },
		Config:    func() (kubeProxy, own any) { return d.config.KubeProxy(), d.config.Own() },
		Flags:     d.config.FlagValues,
		Started:   of.Started, Version: buildinfo.Current().String(),
		Profiling:    d.config.EnableProfiling,
		SetVerbosity: of.SetVerbosity,
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
				if mode := leftovers.ProxyMode(ctx, metricsAddress); sign == leftovers.SignMetricsPort && mode != "" {
					text = fmt.Sprintf("a proxy with mode %s answers at %s", mode, metricsAddress)
				}
				r.Seen(sign, text)
			}
		}
	}
}
