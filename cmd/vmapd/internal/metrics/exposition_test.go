package metrics

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
)

var update = flag.Bool("update", false, "rewrite testdata")

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
			got := text(t, families, ours(families))
			path := filepath.Join("testdata", string(backend)+".prom")
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// disliked are names of kube-proxy and of Kubernetes' libraries that break Prometheus'
// conventions, and which nobody can change.
var disliked = map[string]string{
	"kubeproxy_sync_proxy_rules_no_local_endpoints_total": `non-counter metrics should not have "_total" suffix`,
	"kubeproxy_sync_proxy_rules_iptables_total":           `non-counter metrics should not have "_total" suffix`,
}

// What "promtool check metrics" says.
func TestLint(t *testing.T) {
	seen := map[string]bool{}
	for _, backend := range backends {
		problems, err := promlint.New(strings.NewReader(get(t, fed(all(backend)).Handler, "/metrics"))).Lint()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			switch {
			case disliked[p.Metric] == p.Text:
				seen[p.Metric] = true
			case strings.HasPrefix(p.Metric, "go_"):
			default:
				t.Errorf("%s: %s: %s", backend, p.Metric, p.Text)
			}
		}
	}
	for name := range disliked {
		if !seen[name] {
			t.Errorf("%s is no longer disliked: take it from the list", name)
		}
	}
}

const nft, ipt, ipvs = config.NFTables, config.IPTables, config.IPVS

type on = []config.Backend

// kubeProxyFamilies are those of kube-proxy 1.37: name, type, labels, and the backends that
// have it, none meaning all.
var kubeProxyFamilies = []struct {
	name     string
	kind     dto.MetricType
	labels   []string
	backends on
}{
	{"kubeproxy_sync_proxy_rules_duration_seconds", dto.MetricType_HISTOGRAM, []string{"ip_family"}, nil},
	{"kubeproxy_sync_full_proxy_rules_duration_seconds", dto.MetricType_HISTOGRAM, []string{"ip_family"}, on{nft, ipt}},
	{"kubeproxy_sync_partial_proxy_rules_duration_seconds", dto.MetricType_HISTOGRAM, []string{"ip_family"}, on{nft, ipt}},
	{"kubeproxy_sync_proxy_rules_last_timestamp_seconds", dto.MetricType_GAUGE, []string{"ip_family"}, nil},
	{"kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds", dto.MetricType_GAUGE, []string{"ip_family"}, nil},
	{"kubeproxy_network_programming_duration_seconds", dto.MetricType_HISTOGRAM, []string{"ip_family"}, nil},
	{"kubeproxy_sync_proxy_rules_endpoint_changes_pending", dto.MetricType_GAUGE, nil, nil},
	{"kubeproxy_sync_proxy_rules_endpoint_changes_total", dto.MetricType_COUNTER, nil, nil},
	{"kubeproxy_sync_proxy_rules_service_changes_pending", dto.MetricType_GAUGE, nil, nil},
	{"kubeproxy_sync_proxy_rules_service_changes_total", dto.MetricType_COUNTER, nil, nil},
	{"kubeproxy_sync_proxy_rules_no_local_endpoints_total", dto.MetricType_GAUGE, []string{"ip_family", "traffic_policy"}, nil},
	{"kubeproxy_proxy_healthz_total", dto.MetricType_COUNTER, []string{"code"}, nil},
	{"kubeproxy_proxy_livez_total", dto.MetricType_COUNTER, []string{"code"}, nil},
	{"kubeproxy_conntrack_reconciler_sync_duration_seconds", dto.MetricType_HISTOGRAM, []string{"ip_family"}, nil},
	{"kubeproxy_conntrack_reconciler_deleted_entries_total", dto.MetricType_COUNTER, []string{"ip_family"}, nil},
	{"kubeproxy_sync_proxy_rules_iptables_total", dto.MetricType_GAUGE, []string{"ip_family", "table"}, on{ipt}},
	{"kubeproxy_sync_proxy_rules_iptables_last", dto.MetricType_GAUGE, []string{"ip_family", "table"}, on{ipt}},
	{"kubeproxy_sync_proxy_rules_iptables_restore_failures_total", dto.MetricType_COUNTER, []string{"ip_family"}, on{ipt, ipvs}},
	{"kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total", dto.MetricType_COUNTER, []string{"ip_family"}, on{ipt}},
	{"kubeproxy_iptables_ct_state_invalid_dropped_packets_total", dto.MetricType_COUNTER, nil, on{ipt}},
	{"kubeproxy_iptables_localhost_nodeports_accepted_packets_total", dto.MetricType_COUNTER, nil, on{ipt}},
	{"kubeproxy_sync_proxy_rules_nftables_sync_failures_total", dto.MetricType_COUNTER, []string{"ip_family"}, on{nft}},
	{"kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total", dto.MetricType_COUNTER, []string{"ip_family"}, on{nft}},
	{"kubeproxy_nftables_localhost_nodeport_listeners", dto.MetricType_GAUGE, []string{"ip_family"}, on{nft}},
	{"kubeproxy_nftables_localhost_nodeport_listener_creation_failures_total", dto.MetricType_COUNTER, []string{"ip_family"}, on{nft}},
	{"kubernetes_feature_enabled", dto.MetricType_GAUGE, []string{"name", "stage"}, nil},
	{
		"kubernetes_build_info", dto.MetricType_GAUGE,
		[]string{"build_date", "compiler", "git_commit", "git_tree_state", "git_version", "go_version", "major", "minor", "platform"},
		nil,
	},
	{"process_start_time_seconds", dto.MetricType_GAUGE, nil, nil},
	{"process_resident_memory_bytes", dto.MetricType_GAUGE, nil, nil},
	{"go_goroutines", dto.MetricType_GAUGE, nil, nil},
}

func TestKubeProxysFamiliesAreThere(t *testing.T) {
	for _, backend := range backends {
		families := scrape(t, fed(all(backend)))
		known := map[string]bool{}
		for _, want := range kubeProxyFamilies {
			known[want.name] = true
			f, ok := families[want.name]
			if has := want.backends == nil || slices.Contains(want.backends, backend); has != ok {
				t.Errorf("%s: has %s: %v, want %v", backend, want.name, ok, has)
			}
			if !ok {
				continue
			}
			if f.GetType() != want.kind {
				t.Errorf("%s: %s is a %v, want %v", backend, want.name, f.GetType(), want.kind)
			}
			if f.GetHelp() == "" {
				t.Errorf("%s: %s says nothing of itself", backend, want.name)
			}
			for _, m := range f.GetMetric() {
				var got []string
				for _, l := range m.GetLabel() {
					got = append(got, l.GetName())
				}
				slices.Sort(got)
				if !slices.Equal(got, want.labels) {
					t.Errorf("%s: %s has the labels %q, want %q", backend, want.name, got, want.labels)
				}
			}
		}
		for name := range families {
			if strings.HasPrefix(name, "kubeproxy_") && !known[name] {
				t.Errorf("%s: %s is none of kube-proxy's", backend, name)
			}
		}
	}
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
