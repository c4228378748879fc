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

// newPorts makes the ports, on which nothing listens yet.
func (d *base) newPorts(p *dataplane, o *observers, of Options) *ports {
	c := d.config
	server := func(name, address string, handler http.Handler, reason string) *httpserver.Server {
		return httpserver.New(httpserver.Options{
			Name: name, Address: address, Handler: handler, HardFail: c.BindAddressHardFail, Log: d.log,
			Failed: func(err error) { d.events.Node(events.Warning, reason, err.Error()) },
		})
	}
	pages := httpserver.MetricsPort{
		Metrics: o.metrics.Handler, SLIs: o.metrics.SLIs, ProxyMode: p.name,
		KubeProxy: c.KubeProxy(), Own: c.Own(), Flags: c.FlagValues(),
		Started: of.Started, Version: buildinfo.Current().String(),
		Profiling: c.EnableProfiling, SetVerbosity: of.SetVerbosity,
	}
	return &ports{
		healthz: server("healthz", c.HealthzBindAddress, o.tracker.Handler(), events.ReasonHealthzFailed),
		metrics: server("metrics", c.MetricsBindAddress, pages.Handler(), events.ReasonMetricsFailed),
	}
}

// watchOthers looks, until ctx ends, whether other proxies put back what was removed, or listen on the two ports.
func (d *Daemon) watchOthers(ctx context.Context) {
	address, taken := d.config.MetricsBindAddress, map[string]time.Time{} // since when, by kind of evidence
	d.dataplane.sweep.Watch(ctx, func() {
		for kind, err := range map[string]error{
			leftovers.EvidenceHealthzPort: d.ports.healthz.Err(), leftovers.EvidenceMetricsPort: d.ports.metrics.Err(),
		} {
			switch {
			case !errors.Is(err, syscall.EADDRINUSE):
				delete(taken, kind)
				d.dataplane.evidence.Gone(kind)
			case taken[kind].IsZero():
				taken[kind] = time.Now()
			case time.Since(taken[kind]) > leftovers.HandOver:
				text := err.Error()
				if mode := leftovers.ProxyMode(ctx, address); kind == leftovers.EvidenceMetricsPort && mode != "" {
					text = fmt.Sprintf("a proxy with mode %s answers at %s", mode, address)
				}
				d.dataplane.evidence.Seen(kind, text)
			}
		}
	})
}
