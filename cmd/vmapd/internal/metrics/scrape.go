package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/vmapd/vmapd/model"
)

// emitter receives a value with the values of its labels.
type emitter func(value float64, labels ...string)

// scraped is a metric that is read at each scrape.
type scraped struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	read func(emitter)
}

// scrape registers a metric with the values that read emits.
func (m *Metrics) scrape(kind prometheus.ValueType, namespace, name, help string, labels []string, read func(emitter)) {
	desc := prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
	m.registry.MustRegister(&scraped{desc, kind, read})
}

// perFamily is like scrape, with one value for each family.
func (m *Metrics) perFamily(kind prometheus.ValueType, namespace, name, help string, of func(model.Family) float64) {
	m.scrape(kind, namespace, name, help, []string{ipFamily}, func(emit emitter) {
		for _, f := range model.Families {
			emit(of(f), f.String())
		}
	})
}

// Describe implements prometheus.Collector.
func (s *scraped) Describe(to chan<- *prometheus.Desc) { to <- s.desc }

// Collect implements prometheus.Collector.
func (s *scraped) Collect(to chan<- prometheus.Metric) {
	s.read(func(value float64, labels ...string) { s.emit(to, value, labels...) })
}

func (s *scraped) emit(to chan<- prometheus.Metric, value float64, labels ...string) {
	for i := range labels { // without an API server, nothing has validated names
		labels[i] = strings.ToValidUTF8(labels[i], "�")
	}
	to <- prometheus.MustNewConstMetric(s.desc, s.kind, value, labels...)
}
