package metrics

import (
	"context"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/restclient" // metrics of requests to the API server
	"k8s.io/component-base/metrics/prometheus/slis"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/legacy/userspace"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/kernel"
)

// Options of Metrics. Each scrape calls the functions, several scrapes at once.
type Options struct {
	Backend config.Backend
	Reason  string           // why the backend was chosen
	Build   *debug.BuildInfo // nil: that of this program
	Started time.Time        // of the process

	NFT            func(model.Family) kernel.Stats             // nil unless the backend is nftables
	Legacy         func() [len(model.Families)]host.Stats      // nil unless it is iptables or IPVS
	Pending        func() (services, endpointSlices int)       // changed objects that wait for the next sync
	Queued         func() (last, since time.Time)              // see reconcile.State
	Localhost      func() [len(model.Families)]userspace.Stats // of node ports on loopback
	ConntrackTable func() (entries, limit int, err error)

	// Findings counts the lines of vmapd doctor that are not ok; a check without one has 0.
	Findings func() map[Finding]int

	// Without one of these, its metrics do not exist. APIServerHeard returns when the API server last sent something
	// that made sense, by the plural names of the kinds of objects.
	APIServerHeard func() map[string]time.Time
	// ServiceConnections are new connections of each service port and family, as far as the kernel could be read.
	ServiceConnections func(context.Context) ([]kernel.Count, error)
}

// Finding is a check of vmapd doctor, and its result.
type Finding struct{ Check, Level string }

// Metrics are the metrics of one daemon. It is a reconcile.Observer, and safe for concurrent use.
type Metrics struct {
	Handler http.Handler   // answers /metrics
	SLIs    *http.ServeMux // answers /metrics/slis with the results of the daemon's probes

	options  Options
	registry *prometheus.Registry

	// Metrics that kube-proxy has, too (pkg/proxy/metrics), except those read at a scrape.
	duration, full, partial, programming, conntrackDuration *prometheus.HistogramVec
	lastSync, noLocalEndpoints                              *prometheus.GaugeVec
	services, endpointSlices                                prometheus.Counter
	nftFailures, conntrackDeleted                           *prometheus.CounterVec
	probes                                                  map[string]*prometheus.CounterVec // by path

	// And that it does not have.
	failures                      *prometheus.CounterVec
	servicePorts, ready, unserved *prometheus.GaugeVec
	configRead                    prometheus.Gauge

	last     atomic.Pointer[model.Snapshot]   // nil before the first sync
	triggers [len(model.Families)][]time.Time // Done's: of changes since the last successful sync
}

// New returns Metrics before the first sync, of a valid configuration.
func New(o Options) *Metrics {
	m := &Metrics{SLIs: http.NewServeMux(), options: o, registry: prometheus.NewRegistry()}
	m.registerProxy()
	m.registerOwn()
	m.registerBuild()
	m.configRead.Set(1)
	slis.SLIMetrics{}.Install(m.SLIs)
	// OpenMetrics is not offered: it writes le="1.0" for le="1", so the series would differ from
	// kube-proxy's. An error about one metric must not hide the others.
	gather := prometheus.Gatherers{m.registry, legacyregistry.DefaultGatherer}
	m.Handler = promhttp.HandlerFor(gather, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, Registry: m.registry, ProcessStartTime: o.Started,
	})
	return m
}

const (
	ipFamily = "ip_family" // a label
	counter  = prometheus.CounterValue
	gauge    = prometheus.GaugeValue
)

func familyNames() []string { return []string{model.IPv4.String(), model.IPv6.String()} }

// in returns where a metric is registered that only these backends have: nowhere, if another one runs.
func (m *Metrics) in(backends ...config.Backend) prometheus.Registerer {
	if slices.Contains(backends, m.options.Backend) {
		return m.registry
	}
	return nil
}

// histogram has a series for each family from the start.
func histogram(in prometheus.Registerer, name, help string, buckets []float64) *prometheus.HistogramVec {
	o := prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}
	v := promauto.With(in).NewHistogramVec(o, []string{ipFamily})
	for _, f := range familyNames() {
		v.WithLabelValues(f)
	}
	return v
}

// counterVec has a series for each value of its label from the start, so that rate() sees the first increase.
func counterVec(in prometheus.Registerer, name, help, label string, values ...string) *prometheus.CounterVec {
	v := promauto.With(in).NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	for _, value := range values {
		v.WithLabelValues(value)
	}
	return v
}

func gaugeVec(in prometheus.Registerer, name, help string, labels ...string) *prometheus.GaugeVec {
	return promauto.With(in).NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

type emitter func(value float64, labels ...string)

type scraped struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	read func(emitter)
}

// atScrape registers a metric with the values that read emits.
func atScrape(
	in prometheus.Registerer, kind prometheus.ValueType, name, help string, labels []string, read func(emitter),
) {
	if in != nil {
		in.MustRegister(&scraped{prometheus.NewDesc(name, help, labels, nil), kind, read})
	}
}

// perFamily is like atScrape, with one value for each family.
func perFamily(in prometheus.Registerer, kind prometheus.ValueType, name, help string, of func(model.Family) float64) {
	atScrape(in, kind, name, help, []string{ipFamily}, func(emit emitter) {
		for _, f := range model.Families {
			emit(of(f), f.String())
		}
	})
}

// Describe implements prometheus.Collector.
func (s *scraped) Describe(to chan<- *prometheus.Desc) { to <- s.desc }

// Collect implements prometheus.Collector.
func (s *scraped) Collect(to chan<- prometheus.Metric) {
	s.read(func(value float64, labels ...string) {
		for i := range labels { // without an API server, nothing has validated names
			labels[i] = strings.ToValidUTF8(labels[i], "�")
		}
		to <- prometheus.MustNewConstMetric(s.desc, s.kind, value, labels...)
	})
}
