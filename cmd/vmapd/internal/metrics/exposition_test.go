package metrics

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// othersFamilies are those of libraries, which differ from build to build.
func othersFamilies(name string) bool {
	for _, prefix := range []string{"go_", "process_", "rest_client_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return slices.Contains([]string{ // about component-base's own registry
		"cardinality_enforcement_unexpected_categorizations_total", "disabled_metrics_total",
		"hidden_metrics_total", "registered_metrics_total",
	}, name)
}

func ours(families map[string]*dto.MetricFamily) []string {
	names := slices.Sorted(maps.Keys(families))
	return slices.DeleteFunc(names, othersFamilies)
}

// The whole exposition, as pages and dashboards count on it.
func TestGoldenExposition(t *testing.T) {
	for _, backend := range backends {
		t.Run(string(backend), func(t *testing.T) {
			families := scrape(t, fed(all(backend)))
			testaid.Golden(t, filepath.Join("testdata", string(backend)+".prom"), text(t, families, ours(families)))
		})
	}
}

// The page has each family, with its labels.
func TestThePageListsTheMetrics(t *testing.T) {
	rows := map[string]string{}
	for _, backend := range backends {
		for name, f := range scrape(t, fed(all(backend))) {
			var labels []string
			for _, l := range f.Metric[0].Label {
				labels = append(labels, l.GetName())
			}
			rows[name] = fmt.Sprintf("| `%s` | %s | %s | %s |\n", name, strings.ToLower(f.GetType().String()),
				strings.Join(labels, ", "), f.GetHelp())
		}
	}
	table := "\n| Metric | Type | Labels | Meaning |\n|---|---|---|---|\n"
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		if strings.HasPrefix(name, "kubeproxy_") || strings.HasPrefix(name, "vmapd_") {
			table += strings.Replace(rows[name], "|  |", "| |", 1)
		}
	}
	testaid.Tables(t, "../../docs/operate.md", map[string]string{"metrics": table + "\n"})
}

// A process that has done nothing yet shows nothing that could be taken for a result.
func TestBeforeTheFirstRound(t *testing.T) {
	families := scrape(t, New(bare(config.NFTables)))
	for _, name := range []string{
		"kubeproxy_sync_proxy_rules_last_timestamp_seconds", "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds",
		"kubeproxy_sync_proxy_rules_no_local_endpoints_total", "vmapd_service_ports", "vmapd_service_connections_total",
		"vmapd_conntrack_entries", "vmapd_conntrack_limit", "vmapd_apiserver_last_response_timestamp_seconds",
	} {
		if f, ok := families[name]; ok {
			t.Errorf("%s is there: %v", name, series(f))
		}
	}
	for name, want := range map[string][]string{
		"vmapd_ready": {`{ip_family="IPv4"} 0`, `{ip_family="IPv6"} 0`},
		"kubeproxy_sync_proxy_rules_nftables_sync_failures_total": {`{ip_family="IPv4"} 0`, `{ip_family="IPv6"} 0`},
		"kubeproxy_sync_proxy_rules_service_changes_pending":      {`{} 0`},
		"kubeproxy_proxy_healthz_total":                           {`{code="200"} 0`, `{code="503"} 0`},
	} {
		if diff := cmp.Diff(want, series(families[name])); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
