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

// watchOthers looks, until ctx ends, whether other proxies put back what was removed, or one answers at the metrics
// port.
func (d *Daemon) watchOthers(ctx context.Context) {
	address, taken := d.config.MetricsBindAddress, time.Time{} // since when
	d.dataplane.sweep.Watch(ctx, func() {
		mode := ""
		if errors.Is(d.ports.metrics.Err(), syscall.EADDRINUSE) {
			mode = leftovers.ProxyMode(ctx, address)
		}
		switch {
		case mode == "":
			taken = time.Time{}
			d.dataplane.evidence.Gone(leftovers.EvidenceMetricsPort)
		case taken.IsZero():
			taken = time.Now()
		case time.Since(taken) > leftovers.HandOver:
			d.dataplane.evidence.Seen(leftovers.EvidenceMetricsPort,
				fmt.Sprintf("a proxy with mode %s answers at %s", mode, address))
		}
	})
}
