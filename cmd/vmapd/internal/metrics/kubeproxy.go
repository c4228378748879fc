package metrics

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/model"
)

// syncBuckets are from 1 ms to 16 s.
func syncBuckets() []float64 { return prometheus.ExponentialBuckets(0.001, 2, 15) }

// programmingBuckets are those of the SLO of network programming latency.
func programmingBuckets() []float64 {
	return slices.Concat([]float64{0.25, 0.5},
		prometheus.LinearBuckets(1, 1, 59), prometheus.LinearBuckets(60, 5, 12), prometheus.LinearBuckets(120, 30, 7))
}

// registerProxy makes all metrics that kube-proxy has in the mode of the backend.
func (m *Metrics) registerProxy() {
	all, nft := m.registry, m.in(config.NFTables)
	m.duration = histogram(all, "kubeproxy_sync_proxy_rules_duration_seconds", "Duration of syncs.", syncBuckets())
	rules := m.in(config.NFTables, config.IPTables)
	m.full = histogram(rules, "kubeproxy_sync_full_proxy_rules_duration_seconds",
		"Duration of syncs that compared all rules with the node's.", syncBuckets())
	m.partial = histogram(rules, "kubeproxy_sync_partial_proxy_rules_duration_seconds",
		"Duration of syncs that only wrote changes.", syncBuckets())
	m.programming = histogram(all, "kubeproxy_network_programming_duration_seconds",
		"Time from the change of a Service or pod until it was programmed on this node, "+
			"for changes with a known time.",
		programmingBuckets())
	m.lastSync = gaugeVec(all, "kubeproxy_sync_proxy_rules_last_timestamp_seconds",
		"Time of the last successful sync.", ipFamily)
	atScrape(all, gauge, "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds",
		"Time when a sync was last requested.", []string{ipFamily}, func(emit emitter) {
			last, _ := m.options.Queued()
			for _, f := range model.Families {
				if !last.IsZero() {
					emit(seconds(last), f.String())
				}
			}
		})
	m.services = promauto.With(all).NewCounter(prometheus.CounterOpts{
		Name: "kubeproxy_sync_proxy_rules_service_changes_total", Help: "Service changes included in syncs.",
	})
	m.endpointSlices = promauto.With(all).NewCounter(prometheus.CounterOpts{
		Name: "kubeproxy_sync_proxy_rules_endpoint_changes_total", Help: "EndpointSlice changes included in syncs.",
	})
	for i, kind := range []string{"Service", "Endpoint"} {
		atScrape(all, gauge, "kubeproxy_sync_proxy_rules_"+strings.ToLower(kind)+"_changes_pending",
			kind+" changes that are not programmed yet.", nil, func(emit emitter) {
				services, endpointSlices := m.options.Pending()
				emit(float64([]int{services, endpointSlices}[i]))
			})
	}
	m.noLocalEndpoints = gaugeVec(all, "kubeproxy_sync_proxy_rules_no_local_endpoints_total",
		"Service ports with a Local traffic policy and endpoints, but none on this node.", ipFamily, "traffic_policy")
	m.probes = map[string]*prometheus.CounterVec{}
	for _, name := range []string{"healthz", "livez"} {
		m.probes["/"+name] = counterVec(all, "kubeproxy_proxy_"+name+"_total",
			"Answers of /"+name+", by HTTP status.", "code", "200", "503")
	}
	m.conntrackDuration = histogram(all, "kubeproxy_conntrack_reconciler_sync_duration_seconds",
		"Duration of finding and deleting connections to removed endpoints.", syncBuckets())
	m.conntrackDeleted = counterVec(all, "kubeproxy_conntrack_reconciler_deleted_entries_total",
		"Connections deleted because their endpoint was removed.", ipFamily, familyNames()...)
	m.nftFailures = counterVec(nft, "kubeproxy_sync_proxy_rules_nftables_sync_failures_total", "Failed syncs.",
		ipFamily, familyNames()...)
	counterVec(nft, "kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total",
		"Failures to delete stale chains. Always 0: the same transaction deletes them.", ipFamily, familyNames()...)
	m.registerIPTables()
	m.registerLocalhost()
}

func (m *Metrics) registerIPTables() {
	in, read := m.in(config.IPTables), m.options.Legacy
	perFamily(m.in(config.IPTables, config.IPVS), counter, "kubeproxy_sync_proxy_rules_iptables_restore_failures_total",
		"Failed runs of iptables-restore.", func(f model.Family) float64 { return float64(read()[f].RestoreFailures) })
	perFamily(in, counter, "kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total",
		"Failed runs of iptables-restore that only wrote changes.",
		func(f model.Family) float64 { return float64(read()[f].PartialRestoreFailures) })
	byTable := func(name, help string, of func(model.Family) map[string]int) {
		atScrape(in, gauge, name, help, []string{ipFamily, "table"}, func(emit emitter) {
			for _, f := range model.Families {
				for table, n := range of(f) {
					emit(float64(n), f.String(), table)
				}
			}
		})
	}
	byTable("kubeproxy_sync_proxy_rules_iptables_total", "Rules that are programmed.",
		func(f model.Family) map[string]int { return read()[f].Rules })
	byTable("kubeproxy_sync_proxy_rules_iptables_last", "Rules that the last sync wrote.",
		func(f model.Family) map[string]int { return read()[f].RulesWritten })
	atScrape(in, counter, "kubeproxy_iptables_ct_state_invalid_dropped_packets_total",
		"Packets dropped because connection tracking classified them as INVALID, "+
			"as of the last comparison with the node's rules.",
		nil, func(emit emitter) {
			emit(float64(read()[model.IPv4].InvalidDropped + read()[model.IPv6].InvalidDropped))
		})
}

// registerLocalhost makes the metrics about node ports on loopback. kube-proxy's metric for iptables counts packets
// that its rules translate, the first one of each connection; vmapd counts the connections that its listeners accept.
func (m *Metrics) registerLocalhost() {
	read, nft := m.options.Localhost, m.in(config.NFTables)
	perFamily(m.registry, gauge, "vmapd_localhost_nodeport_listeners_missing",
		"Node ports on loopback that cannot be served, for instance because another process has the port.",
		func(f model.Family) float64 { return float64(read()[f].Missing) })
	perFamily(nft, gauge, "kubeproxy_nftables_localhost_nodeport_listeners",
		"Open listeners for node ports on loopback.",
		func(f model.Family) float64 { return float64(read()[f].Listeners) })
	perFamily(nft, counter, "kubeproxy_nftables_localhost_nodeport_listener_creation_failures_total",
		"Failures to open a listener for a node port on loopback.",
		func(f model.Family) float64 { return float64(read()[f].Failures) })
	atScrape(m.in(config.IPTables), counter, "kubeproxy_iptables_localhost_nodeports_accepted_packets_total",
		"Connections to node ports on loopback, counted by their first packet.",
		nil, func(emit emitter) { emit(float64(read()[model.IPv4].Accepted + read()[model.IPv6].Accepted)) })
}
