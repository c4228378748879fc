// Package metrics holds the metrics of the daemon for Prometheus.
//
//	reconcile.Loop ── Done ──────────┐
//	probes, conntrack ───────────────┼──> Metrics ── Handler ──> /metrics
//	backends ── funcs, when asked ───┘       └── SLIHandler ──> /metrics/slis
//
// A metric that kube-proxy has keeps its name, labels and buckets, and exists in the same modes, so that dashboards and
// alerts keep working. Other metrics are called vmapd_*. Kubernetes' libraries register theirs (rest_client_*, go_*,
// process_*) in a registry of their own; the handler serves both.
//
// Labels have few values, except those of vmapd_service_connections_total, which is off by default.
package metrics
