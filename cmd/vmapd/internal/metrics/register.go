package metrics

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/model"
)

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

// emitter receives a value with the values of its labels.
type emitter func(value float64, labels ...string)

// scraped is a metric that is read at each scrape.
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
