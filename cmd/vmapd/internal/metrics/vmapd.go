package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/kernel"
)

const ownNamespace = "vmapd"

// ownFigures are the metrics that kube-proxy does not have, except those read at a scrape.
type ownFigures struct {
	failures     *prometheus.CounterVec
	servicePorts *prometheus.GaugeVec
	ready        *prometheus.GaugeVec
	unserved     *prometheus.GaugeVec
	rejected     *prometheus.GaugeVec // objects
	overBudget   *prometheus.GaugeVec // objects

	batchOperations, batchBytes, batchDuration *prometheus.HistogramVec // nil but for nftables

	configRead *prometheus.GaugeVec // without labels; a vector is empty before the first reading
}

func (m *Metrics) registerOwn() {
	o := &m.own
	m.gauge(ownNamespace, "backend_info", "The backend that programs this node, and the reason for choosing it. Always 1.", "backend", "reason").
		WithLabelValues(m.options.Backend, strings.ToValidUTF8(m.options.Reason, "�")).Set(1)
	o.failures = m.familyCounter(ownNamespace, "sync_failures_total", "Failed syncs, with any backend.")
	o.servicePorts = m.gauge(ownNamespace, "service_ports", "Service ports that are programmed.", ipFamily)
	o.ready = m.gauge(ownNamespace, "ready", "Whether all Services have been programmed once.", ipFamily)
	for _, f := range model.Families {
		o.ready.WithLabelValues(f.String())
	}
	o.unserved = m.gauge(ownNamespace, "endpoints_over_budget", "Endpoints that get no connections, because their Service has more than its budget allows.", ipFamily)
	o.rejected = m.gauge(ownNamespace, "rejected_objects", "Objects that are ignored, in whole or in part, because they are invalid; the log has the reasons.", "kind")
	o.overBudget = m.gauge(ownNamespace, "objects_over_budget", "Objects, such as Services, that exceed a budget; the log and an event have the details.", "budget")
	for _, b := range model.AllBudgets {
		o.overBudget.WithLabelValues(string(b))
	}
	o.configRead = m.gauge(ownNamespace, "config_last_reload_successful", "Whether the configuration was valid when it was last read.")
	if m.options.Backend == NFTables {
		o.batchOperations = m.histogram(ownNamespace, "batch_size_operations", "nftables operations in a batch.", prometheus.ExponentialBuckets(1, 4, 11))
		o.batchBytes = m.histogram(ownNamespace, "batch_size_bytes", "Bytes in a batch, as sent to the kernel.", prometheus.ExponentialBuckets(256, 4, 11))
		o.batchDuration = m.histogram(ownNamespace, "batch_duration_seconds",
			"Time to compile a batch, to send it, and to receive the kernel's acknowledgement.", prometheus.ExponentialBuckets(0.0001, 2, 18))
	}
	if read := m.options.APIServerHeard; read != nil {
		m.scrape(prometheus.GaugeValue, ownNamespace, "apiserver_last_response_timestamp_seconds",
			"Time of the last list or watch event from the API server that made sense, by kind of objects. Watches have an event about once a minute.", []string{"resource"},
			func(emit emitter) {
				for resource, at := range read() {
					emit(seconds(at), resource)
				}
			})
	}
	if read := m.options.Findings; read != nil {
		m.scrape(prometheus.GaugeValue, ownNamespace, "doctor_findings",
			"Lines of vmapd doctor with the level warn or fail, by check. The node is examined at scrapes, at most every 30 seconds.", []string{"check", "level"},
			func(emit emitter) {
				for f, n := range read() {
					emit(float64(n), f.Check, f.Level)
				}
			})
	}
	m.registerBackend()
	m.registerOthers()
	m.registerConntrack()
	m.registerConnections()
}

// stats returns the counters of the backend, or nil.
func (m *Metrics) stats() func(model.Family) kernel.Stats {
	if m.options.Legacy == nil {
		return m.options.NFT
	}
	return func(f model.Family) kernel.Stats {
		s := m.options.Legacy()[f]
		return kernel.Stats{Batches: s.Batches, Operations: s.Operations, Bytes: s.Bytes, Repairs: s.Repairs}
	}
}

func (m *Metrics) registerBackend() {
	read := m.stats()
	if read == nil {
		return
	}
	counter := func(name, help string, of func(kernel.Stats) uint64) {
		m.perFamily(prometheus.CounterValue, ownNamespace, name, help, func(f model.Family) float64 { return float64(of(read(f))) })
	}
	counter("batches_total", "Batches of changes that were applied to the dataplane.",
		func(s kernel.Stats) uint64 { return s.Batches })
	counter("batch_operations_total", "Operations in these batches, such as nftables operations sent to the kernel.",
		func(s kernel.Stats) uint64 { return s.Operations })
	if m.options.Backend != IPVS {
		counter("batch_bytes_total", "Bytes in these batches, as sent to the kernel or to iptables-restore.",
			func(s kernel.Stats) uint64 { return s.Bytes })
		counter("repairs_total", "Comparisons that found and repaired changes of others to vmapd's rules.",
			func(s kernel.Stats) uint64 { return s.Repairs })
	}
	if m.options.Backend == NFTables {
		m.perFamily(prometheus.GaugeValue, ownNamespace, "refused_service_ports", "Service ports that the kernel rejects; the log has the reasons.",
			func(f model.Family) float64 { return float64(read(f).Rejected) })
	}
}

// registerOthers makes the metrics about other programs that have rules on the node.
func (m *Metrics) registerOthers() {
	if read := m.options.Leftovers; read != nil {
		m.scrape(prometheus.GaugeValue, ownNamespace, "leftovers",
			"Chains, tables, IPVS virtual servers and ipsets of another proxy or backend that are on the node.", []string{"owner", "kind"},
			func(emit emitter) {
				for l, n := range read() {
					emit(float64(n), l.Owner, l.Kind)
				}
			})
	}
	if read := m.options.OtherProxy; read != nil {
		m.scrape(prometheus.GaugeValue, ownNamespace, "other_proxy",
			"Whether there is a sign that another proxy is active on the node; the log has the details.", []string{"kind"},
			func(emit emitter) {
				for kind, is := range read() {
					value := 0.0
					if is {
						value = 1
					}
					emit(value, kind)
				}
			})
	}
	if read := m.options.ForeignChanges; read != nil {
		m.scrape(prometheus.CounterValue, ownNamespace, "foreign_changes_total",
			"Changes of vmapd's rules by other programs that were noticed as they happened.", nil,
			func(emit emitter) { emit(float64(read().Changes)) })
		m.scrape(prometheus.CounterValue, ownNamespace, "foreign_change_overruns_total",
			"Times when changes of other programs were too many to be followed.", nil,
			func(emit emitter) { emit(float64(read().Overruns)) })
	}
}

func (m *Metrics) registerConntrack() {
	read := m.options.ConntrackTable
	if read == nil {
		return
	}
	m.scrape(prometheus.GaugeValue, ownNamespace, "conntrack_entries", "Entries of the connection tracking table.", nil, func(emit emitter) {
		if entries, _, err := read(); err == nil {
			emit(float64(entries))
		}
	})
	m.scrape(prometheus.GaugeValue, ownNamespace, "conntrack_limit", "Maximum number of entries of the connection tracking table.", nil, func(emit emitter) {
		if _, limit, err := read(); err == nil {
			emit(float64(limit))
		}
	})
}

// registerConnections makes the only metrics with series for each Service port. Their values
// are read at a scrape: a deleted Service has no series in the next one.
func (m *Metrics) registerConnections() {
	read := m.options.ServiceConnections
	if read == nil {
		return
	}
	desc := prometheus.NewDesc(ownNamespace+"_service_connections_total",
		"New connections to a Service port through this node: forwarded, or refused because no endpoint is ready.",
		[]string{"namespace", "service", "port", "protocol", ipFamily, "outcome"}, nil)
	m.registry.MustRegister(&serviceConnections{read, desc})
}

// The outcomes of connections.
const (
	outcomeForwarded = "forwarded"
	outcomeRefused   = "refused"
)

// serviceConnections is a metric with several values for each service port.
type serviceConnections struct {
	read func() []kernel.Count
	desc *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *serviceConnections) Describe(to chan<- *prometheus.Desc) { to <- c.desc }

// Collect implements prometheus.Collector.
func (c *serviceConnections) Collect(to chan<- prometheus.Metric) {
	counter := scraped{desc: c.desc, kind: prometheus.CounterValue}
	emit := func(n model.ServicePortName, f model.Family, outcome string, count uint64) {
		counter.emit(to, float64(count), n.Namespace, n.Name, n.Port, strings.ToUpper(n.Protocol.String()), f.String(), outcome)
	}
	for _, n := range c.read() {
		emit(n.Name, n.Family, outcomeForwarded, n.Connections-n.Refused)
		emit(n.Name, n.Family, outcomeRefused, n.Refused)
	}
}
