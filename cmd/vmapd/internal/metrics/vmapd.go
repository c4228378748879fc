package metrics

import (
	"cmp"
	"context"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/buildinfo"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/kernel"
)

func (m *Metrics) registerOwn() {
	all := m.registry
	gaugeVec(all, "vmapd_backend_info",
		"The backend that programs this node, and the reason for choosing it. Always 1.", "backend", "reason").
		WithLabelValues(string(m.options.Backend), strings.ToValidUTF8(m.options.Reason, "�")).Set(1)
	m.failures = counterVec(all, "vmapd_sync_failures_total", "Failed syncs, with any backend.",
		ipFamily, familyNames()...)
	m.servicePorts = gaugeVec(all, "vmapd_service_ports", "Service ports that are programmed.", ipFamily)
	m.ready = gaugeVec(all, "vmapd_ready", "Whether all Services have been programmed once.", ipFamily)
	for _, f := range familyNames() {
		m.ready.WithLabelValues(f)
	}
	m.unserved = gaugeVec(all, "vmapd_endpoints_over_budget",
		"Endpoints that get no connections, because their Service has more than its budget allows.", ipFamily)
	atScrape(all, gauge, "vmapd_rejected_objects",
		"Objects that are ignored, in whole or in part, because they are invalid; the log has the reasons.",
		[]string{"kind"}, func(emit emitter) {
			for kind, n := range m.objectsBy(func(p model.Problem) string { return p.Object.Kind }) {
				emit(float64(n), kind)
			}
		})
	atScrape(all, gauge, "vmapd_objects_over_budget",
		"Objects, such as Services, that exceed a budget; the log and an event have the details.",
		[]string{"budget"}, func(emit emitter) {
			over := m.objectsBy(func(p model.Problem) string { return string(p.Budget) })
			for _, b := range model.AllBudgets {
				emit(float64(over[string(b)]), string(b))
			}
		})
	m.configRead = promauto.With(all).NewGauge(prometheus.GaugeOpts{
		Name: "vmapd_config_last_reload_successful", Help: "Whether the configuration was valid when it was last read.",
	})
	m.registerBackend()
	m.registerNode()
	m.registerConnections()
}

// stats returns the counters of a backend that has rules.
func (m *Metrics) stats(f model.Family) kernel.Stats {
	if m.options.Legacy == nil {
		return m.options.NFT(f)
	}
	s := m.options.Legacy()[f]
	return kernel.Stats{Operations: s.Operations, Repairs: s.Repairs}
}

func (m *Metrics) registerBackend() {
	perFamily(m.in(config.NFTables, config.IPTables, config.IPVS), counter, "vmapd_batch_operations_total",
		"Operations in all batches, such as nftables operations sent to the kernel.",
		func(f model.Family) float64 { return float64(m.stats(f).Operations) })
	perFamily(m.in(config.NFTables, config.IPTables), counter, "vmapd_repairs_total",
		"Comparisons that found and repaired changes of vmapd's rules by other programs.",
		func(f model.Family) float64 { return float64(m.stats(f).Repairs) })
	perFamily(m.in(config.NFTables), gauge, "vmapd_refused_service_ports",
		"Service ports that the kernel rejects; the log has the reasons.",
		func(f model.Family) float64 { return float64(m.stats(f).Rejected) })
}

// registerNode makes the metrics about the API server, and about the node and other programs there.
func (m *Metrics) registerNode() {
	all, o := m.registry, &m.options
	if o.APIServerHeard != nil {
		atScrape(all, gauge, "vmapd_apiserver_last_response_timestamp_seconds",
			"Time of the last list or watch event from the API server that was valid, by kind of objects. "+
				"Watches have an event about once a minute.", []string{"resource"}, func(emit emitter) {
				for resource, at := range o.APIServerHeard() {
					emit(seconds(at), resource)
				}
			})
	}
	atScrape(all, gauge, "vmapd_doctor_findings", "Lines of vmapd doctor with the level warn or fail, by check. "+
		"The node is examined every ten seconds.", []string{"check", "level"}, func(emit emitter) {
		for f, n := range o.Findings() {
			emit(float64(n), f.Check, f.Level)
		}
	})
	for i, metric := range []struct{ name, help string }{
		{"vmapd_conntrack_entries", "Entries of the connection tracking table."},
		{"vmapd_conntrack_limit", "Maximum number of entries of the connection tracking table."},
	} {
		atScrape(all, gauge, metric.name, metric.help, nil, func(emit emitter) {
			if entries, limit, err := o.ConntrackTable(); err == nil {
				emit(float64([]int{entries, limit}[i]))
			}
		})
	}
}

// registerConnections makes the only metric with series for each Service port. Its values
// are read at a scrape: a deleted Service has no series in the next one.
func (m *Metrics) registerConnections() {
	if m.options.ServiceConnections == nil {
		return
	}
	atScrape(m.registry, counter, "vmapd_service_connections_total",
		"New connections to a Service port through this node, also those that are refused.",
		[]string{"namespace", "service", "port", "protocol", ipFamily}, func(emit emitter) {
			const timeout = 8 * time.Second // that of Prometheus is 10 s
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
			defer cancel()
			counts, _ := m.options.ServiceConnections(ctx)
			for _, c := range counts {
				n, protocol, family := c.Name, strings.ToUpper(c.Name.Protocol.String()), c.Family.String()
				emit(float64(c.Connections), n.Namespace, n.Name, n.Port, protocol, family)
			}
		})
}

// clientLibrary has version v0.Y.Z where Kubernetes has v1.Y.Z.
const clientLibrary = "k8s.io/client-go"

// registerBuild makes the metrics about this program. git_version is the version of Kubernetes that it was built for,
// with vmapd's own behind it, as distributions of Kubernetes have it: alerts compare the first part among all
// components of a cluster.
func (m *Metrics) registerBuild() {
	own, _ := debug.ReadBuildInfo()
	info := cmp.Or(m.options.Build, own, &debug.BuildInfo{})
	b, major, minor, version := buildinfo.Read(info), "", "", "v0.0.0"
	for _, d := range info.Deps {
		if v, ok := strings.CutPrefix(d.Version, "v0."); ok && d.Path == clientLibrary {
			major, version = "1", "v1."+v
			minor, _, _ = strings.Cut(v, ".")
		}
	}
	version += "+vmapd." + strings.ReplaceAll(strings.TrimPrefix(b.Version, "v"), "+", ".")
	treeState := map[bool]string{true: "dirty", false: "clean"}[b.Modified]
	gaugeVec(m.registry, "kubernetes_build_info",
		"The version of Kubernetes that this program was built for, and its build information. Always 1.",
		"major", "minor", "git_version", "git_commit", "git_tree_state", "build_date", "go_version", "compiler",
		"platform").
		WithLabelValues(major, minor, version, b.Commit, treeState, b.Date, b.GoVersion, runtime.Compiler,
			b.Platform).Set(1)
	gaugeVec(m.registry, "vmapd_build_info", "The version of this program. Always 1.", "version", "revision").
		WithLabelValues(b.Version, b.Commit).Set(1)
}
