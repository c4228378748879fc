package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const defaultMetricsAddress = "127.0.0.1:10249" // as kube-proxy

// newRegistry returns a registry that says which backend runs and why.
func newRegistry(p *dataplane) *prometheus.Registry {
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "vmapd_backend_info",
		Help: "The backend that programs this node, and why it was chosen. Always 1.",
	}, []string{"backend", "reason"})
	info.WithLabelValues(p.name, p.why).Set(1)
	r := prometheus.NewRegistry()
	r.MustRegister(info, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// serveMetrics serves /metrics until ctx ends. Where it can't listen, that is logged: Services
// go before figures.
func serveMetrics(ctx context.Context, addr string, r *prometheus.Registry, log *slog.Logger) {
	if addr == "" {
		return
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(r, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		log.LogAttrs(ctx, slog.LevelError, "no metrics are served", slog.String("address", addr), slog.Any("err", err))
		return
	}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.LogAttrs(ctx, slog.LevelError, "metrics are no longer served", slog.Any("err", err))
		}
	}()
}
