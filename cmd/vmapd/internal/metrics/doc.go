// Package metrics holds all figures that the daemon shows to Prometheus.
//
//	reconcile.Loop ── Queued, Done ──┐
//	probes, conntrack, batches ──────┼──> Metrics ── Handler ──> /metrics
//	backends ── funcs, when asked ───┘       └── SLIHandler ──> /metrics/slis
//
// Whatever kube-proxy tells is told under its names, with its labels and buckets, and in the
// modes in which it does: dashboards and alerts go on to work. What there is besides is called
// vmapd_*. What Kubernetes' libraries count for themselves (rest_client_*, go_*, process_*)
// they keep in a registry of their own, and both are shown as one.
//
// Labels have few values, but for vmapd_service_connections_total, which has to be switched on.
package metrics
