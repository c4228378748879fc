package metrics

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/vmapd/vmapd/model"
)

const ownNamespace = "vmapd"

// ownFigures are those that kube-proxy has not, if they are noted as things happen.
type ownFigures struct {
	failures     *prometheus.CounterVec
	servicePorts *prometheus.GaugeVec
	ready        *prometheus.GaugeVec
	rejected     *prometheus.GaugeVec // objects

	batchOperations, batchBytes, batchDuration *prometheus.HistogramVec // nil but for nftables

	reloadOK, reloadTime *prometheus.GaugeVec // without labels, so that they are not shown before the first
}

func (m *Metrics) registerOwn() {
	o := &m.own
	m.gauge(ownNamespace, "backend_info", "The backend that programs this node, and why it was chosen. Always 1.", "backend", "reason").
		WithLabelValues(m.options.Backend, strings.ToValidUTF8(m.options.Reason, "�")).Set(1)
	o.failures = m.familyCounter(ownNamespace, "sync_failures_total", "Rounds of programming that failed, whatever the backend.")
	o.servicePorts = m.gauge(ownNamespace, "service_ports", "Ports of Services that are programmed.", ipFamily)
	o.ready = m.gauge(ownNamespace, "ready", "Whether all Services have been programmed once.", ipFamily)
	for _, f := range m.families {
		o.ready.WithLabelValues(f.String())
	}
	o.rejected = m.gauge(ownNamespace, "rejected_objects", "Objects that are wrong, so that they or a part of them are left out; the log says why.", "kind")
	o.reloadOK = m.gauge(ownNamespace, "config_last_reload_successful", "Whether the last reading of the configuration went well.")
	o.reloadTime = m.gauge(ownNamespace, "config_last_reload_success_timestamp_seconds", "When the configuration was last read and taken over.")
	if m.options.Backend == NFTables {
		o.batchOperations = m.histogram(ownNamespace, "batch_size_operations", "Operations in a batch.", prometheus.ExponentialBuckets(1, 4, 11))
		o.batchBytes = m.histogram(ownNamespace, "batch_size_bytes", "Size of a batch, as sent to the kernel.", prometheus.ExponentialBuckets(256, 4, 11))
		o.batchDuration = m.histogram(ownNamespace, "batch_duration_seconds",
			"Time to compile a batch and have the kernel carry it out.", prometheus.ExponentialBuckets(0.0001, 2, 18))
	}
	m.registerBackend()
	m.registerConntrack()
	m.registerEvents()
	m.registerConnections()
}

// stats returns what the backend has done, or nil if it does not tell.
func (m *Metrics) stats() func() [len(model.Families)]BackendStats {
	if m.options.Legacy == nil {
		return m.options.NFT
	}
	return func() (all [len(model.Families)]BackendStats) {
		for f, s := range m.options.Legacy() {
			all[f] = BackendStats{Batches: s.Batches, Operations: s.Operations, Bytes: s.Bytes, Repairs: s.Repairs}
		}
		return all
	}
}

func (m *Metrics) registerBackend() {
	read := m.stats()
	if read == nil {
		return
	}
	for _, figure := range []struct {
		kind       prometheus.ValueType
		name, help string
		of         func(*BackendStats) float64
		without    []string // the backends that can't tell
	}{
		{
			prometheus.CounterValue, "batches_total", "Changes to the dataplane that were carried out.",
			func(s *BackendStats) float64 { return float64(s.Batches) }, nil,
		},
		{
			prometheus.CounterValue, "batch_operations_total", "Single operations in these changes.",
			func(s *BackendStats) float64 { return float64(s.Operations) }, nil,
		},
		{
			prometheus.CounterValue, "batch_bytes_total", "Size of these changes, as sent to the kernel or to iptables-restore.",
			func(s *BackendStats) float64 { return float64(s.Bytes) },
			[]string{IPVS},
		},
		{
			prometheus.CounterValue, "repairs_total", "Comparisons that found our rules changed by others, and put them right.",
			func(s *BackendStats) float64 { return float64(s.Repairs) },
			[]string{IPVS},
		},
		{
			prometheus.GaugeValue, "refused_service_ports", "Ports of Services that the kernel refuses; the log says why.",
			func(s *BackendStats) float64 { return float64(s.Rejected) },
			[]string{IPTables, IPVS},
		},
	} {
		if slices.Contains(figure.without, m.options.Backend) {
			continue
		}
		m.scrape(figure.kind, ownNamespace, figure.name, figure.help, []string{ipFamily}, func(emit emitter) {
			stats := read()
			for _, f := range m.families {
				emit(figure.of(&stats[f]), f.String())
			}
		})
	}
}

func (m *Metrics) registerConntrack() {
	read := m.options.ConntrackTable
	if read == nil {
		return
	}
	m.scrape(prometheus.GaugeValue, ownNamespace, "conntrack_entries", "Connections that the kernel tracks.", nil, func(emit emitter) {
		if entries, _, ok := read(); ok {
			emit(float64(entries))
		}
	})
	m.scrape(prometheus.GaugeValue, ownNamespace, "conntrack_limit", "Connections that the kernel can track.", nil, func(emit emitter) {
		if _, limit, ok := read(); ok {
			emit(float64(limit))
		}
	})
}

func (m *Metrics) registerEvents() {
	read := m.options.EventsDropped
	if read == nil {
		return
	}
	m.scrape(prometheus.CounterValue, ownNamespace, "events_dropped_total",
		"Events that were not written: too many, or the API server was away for too long.", nil,
		func(emit emitter) { emit(float64(read())) })
}

// registerConnections makes the one figure with a series for each port of a Service. They are
// not kept here: those of a Service that is deleted are gone from the next scrape.
func (m *Metrics) registerConnections() {
	read := m.options.ServiceConnections
	if read == nil {
		return
	}
	m.scrape(prometheus.CounterValue, ownNamespace, "service_connections_total",
		"New connections to a port of a Service through this node.", []string{"namespace", "service", "port", "protocol", ipFamily},
		func(emit emitter) {
			for _, c := range read() {
				emit(float64(c.Connections), c.Name.Namespace, c.Name.Name, c.Name.Port, strings.ToUpper(c.Name.Protocol.String()), c.Family.String())
			}
		})
}
