package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/model"
)

const ipFamily = "ip_family" // a label

// proxyFigures are the metrics that kube-proxy has, too (pkg/proxy/metrics), except those read
// at a scrape.
type proxyFigures struct {
	duration, full, partial  *prometheus.HistogramVec // full and partial are nil for IPVS
	programming              *prometheus.HistogramVec
	lastSync, lastQueued     *prometheus.GaugeVec
	services, endpointSlices prometheus.Counter
	noLocalEndpoints         *prometheus.GaugeVec
	failures                 *prometheus.CounterVec // nil but for nftables
	healthz, livez           *prometheus.CounterVec
	conntrackDuration        *prometheus.HistogramVec
	conntrackDeleted         *prometheus.CounterVec
}

// syncBuckets are from 1 ms to 16 s.
func syncBuckets() []float64 { return prometheus.ExponentialBuckets(0.001, 2, 15) }

// programmingBuckets are those of the SLO of network programming latency.
func programmingBuckets() []float64 {
	return slices.Concat([]float64{0.25, 0.5},
		prometheus.LinearBuckets(1, 1, 59), prometheus.LinearBuckets(60, 5, 12), prometheus.LinearBuckets(120, 30, 7))
}

const proxyNamespace = "kubeproxy"

func (m *Metrics) histogram(namespace, name, help string, buckets []float64) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, []string{ipFamily})
	m.registry.MustRegister(v)
	for _, f := range model.Families {
		v.WithLabelValues(f.String())
	}
	return v
}

func (m *Metrics) gauge(namespace, name, help string, labels ...string) *prometheus.GaugeVec {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)
	m.registry.MustRegister(v)
	return v
}

func (m *Metrics) counter(namespace, name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	m.registry.MustRegister(v)
	return v
}

// familyCounter has a series for each family from the start, so that rate() sees the first
// increase.
func (m *Metrics) familyCounter(namespace, name, help string) *prometheus.CounterVec {
	v := m.counter(namespace, name, help, ipFamily)
	for _, f := range model.Families {
		v.WithLabelValues(f.String())
	}
	return v
}

func (m *Metrics) codeCounter(name, help string) *prometheus.CounterVec {
	v := m.counter(proxyNamespace, name, help, "code")
	for _, code := range []string{"200", "503"} {
		v.WithLabelValues(code)
	}
	return v
}

// registerProxy makes all metrics that kube-proxy has in the mode of the backend.
func (m *Metrics) registerProxy() {
	p := &m.proxy
	p.duration = m.histogram(proxyNamespace, "sync_proxy_rules_duration_seconds", "Duration of syncs.", syncBuckets())
	p.programming = m.histogram(proxyNamespace, "network_programming_duration_seconds",
		"Time from the change of a Service or pod until it was programmed on this node, for changes whose time is known.", programmingBuckets())
	p.lastSync = m.gauge(proxyNamespace, "sync_proxy_rules_last_timestamp_seconds", "Time of the last successful sync.", ipFamily)
	p.lastQueued = m.gauge(proxyNamespace, "sync_proxy_rules_last_queued_timestamp_seconds", "Time when a sync was last requested.", ipFamily)
	p.services = m.counter(proxyNamespace, "sync_proxy_rules_service_changes_total", "Service changes included in syncs.").WithLabelValues()
	p.endpointSlices = m.counter(proxyNamespace, "sync_proxy_rules_endpoint_changes_total", "EndpointSlice changes included in syncs.").WithLabelValues()
	p.noLocalEndpoints = m.gauge(proxyNamespace, "sync_proxy_rules_no_local_endpoints_total",
		"Service ports with a Local traffic policy and endpoints, but none on this node.", ipFamily, "traffic_policy")
	p.healthz = m.codeCounter("proxy_healthz_total", "Answers of /healthz, by HTTP status.")
	p.livez = m.codeCounter("proxy_livez_total", "Answers of /livez, by HTTP status.")
	p.conntrackDuration = m.histogram(proxyNamespace, "conntrack_reconciler_sync_duration_seconds",
		"Duration of finding and deleting connections to removed endpoints.", syncBuckets())
	p.conntrackDeleted = m.familyCounter(proxyNamespace, "conntrack_reconciler_deleted_entries_total", "Connections deleted because their endpoint was removed.")
	m.registerPending()
	switch m.options.Backend {
	case NFTables:
		m.registerFull()
		p.failures = m.familyCounter(proxyNamespace, "sync_proxy_rules_nftables_sync_failures_total", "Failed syncs.")
		m.familyCounter(proxyNamespace, "sync_proxy_rules_nftables_cleanup_failures_total",
			"Failures to delete stale chains. Always 0: the same transaction deletes them.")
	case IPTables:
		m.registerFull()
		m.registerRestores()
		m.registerIPTables()
	case IPVS:
		m.registerRestores()
	}
	m.registerLocalhost()
}

func (m *Metrics) registerFull() {
	m.proxy.full = m.histogram(proxyNamespace, "sync_full_proxy_rules_duration_seconds",
		"Duration of syncs that compared all rules with the node's.", syncBuckets())
	m.proxy.partial = m.histogram(proxyNamespace, "sync_partial_proxy_rules_duration_seconds",
		"Duration of syncs that only wrote changes.", syncBuckets())
}

func (m *Metrics) registerPending() {
	service := func(services, _ int) int { return services }
	slice := func(_, slices int) int { return slices }
	for name, which := range map[string]func(services, slices int) int{"service": service, "endpoint": slice} {
		m.scrape(prometheus.GaugeValue, proxyNamespace, "sync_proxy_rules_"+name+"_changes_pending",
			"Changes that are not programmed yet.", nil, func(emit emitter) { emit(float64(which(m.pending()))) })
	}
}

// registerRestores makes the metric that both legacy backends have.
func (m *Metrics) registerRestores() {
	if read := m.options.Legacy; read != nil {
		m.perFamily(prometheus.CounterValue, proxyNamespace, "sync_proxy_rules_iptables_restore_failures_total", "Failed runs of iptables-restore.",
			func(f model.Family) float64 { return float64(read()[f].RestoreFailures) })
	}
}

func (m *Metrics) registerIPTables() {
	read := m.options.Legacy
	if read == nil {
		return
	}
	m.perFamily(prometheus.CounterValue, proxyNamespace, "sync_proxy_rules_iptables_partial_restore_failures_total",
		"Failed runs of iptables-restore that only wrote changes.",
		func(f model.Family) float64 { return float64(read()[f].PartialRestoreFailures) })
	for name, rules := range map[string]struct {
		help string
		of   func(host.Stats) map[string]int
	}{
		"sync_proxy_rules_iptables_total": {"Rules that are programmed.", func(s host.Stats) map[string]int { return s.Rules }},
		"sync_proxy_rules_iptables_last":  {"Rules that the last sync wrote.", func(s host.Stats) map[string]int { return s.RulesWritten }},
	} {
		m.scrape(prometheus.GaugeValue, proxyNamespace, name, rules.help, []string{ipFamily, "table"}, func(emit emitter) {
			stats := read()
			for _, f := range model.Families {
				for table, n := range rules.of(stats[f]) {
					emit(float64(n), f.String(), table)
				}
			}
		})
	}
	m.scrape(prometheus.CounterValue, proxyNamespace, "iptables_ct_state_invalid_dropped_packets_total",
		"Packets dropped because connection tracking classified them as INVALID, as of the last comparison with the node's rules.", nil,
		func(emit emitter) {
			stats := read()
			emit(float64(stats[model.IPv4].InvalidDropped + stats[model.IPv6].InvalidDropped))
		})
}

// registerLocalhost makes the metrics about node ports on loopback. kube-proxy's metric for
// iptables counts packets that its rules translate, the first one of each connection; vmapd
// counts the connections that its listeners accept.
func (m *Metrics) registerLocalhost() {
	read := m.options.Localhost
	if read == nil {
		return
	}
	m.perFamily(prometheus.GaugeValue, ownNamespace, "localhost_nodeport_listeners_missing",
		"Node ports on loopback that cannot be served, for instance because another process has the port.",
		func(f model.Family) float64 { return float64(read()[f].Missing) })
	switch m.options.Backend {
	case NFTables:
		m.perFamily(prometheus.GaugeValue, proxyNamespace, "nftables_localhost_nodeport_listeners", "Open listeners for node ports on loopback.",
			func(f model.Family) float64 { return float64(read()[f].Listeners) })
		m.perFamily(prometheus.CounterValue, proxyNamespace, "nftables_localhost_nodeport_listener_creation_failures_total",
			"Failures to open a listener for a node port on loopback.",
			func(f model.Family) float64 { return float64(read()[f].Failures) })
	case IPTables:
		m.scrape(prometheus.CounterValue, proxyNamespace, "iptables_localhost_nodeports_accepted_packets_total",
			"Connections to node ports on loopback, counted by their first packet.", nil, func(emit emitter) {
				stats := read()
				emit(float64(stats[model.IPv4].Accepted + stats[model.IPv6].Accepted))
			})
	}
}
