package metrics

import (
	"fmt"
	"testing"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// families are a figure of each family.
func families(ipv4, ipv6 any) []string {
	return []string{fmt.Sprintf(`{ip_family="IPv4"} %v`, ipv4), fmt.Sprintf(`{ip_family="IPv6"} %v`, ipv6)}
}

// Each figure is what the parts of the daemon say (see all and fed), written by hand: -update does not change it.
func TestFigures(t *testing.T) {
	for backend, want := range map[config.Backend]map[string][]string{
		config.NFTables: {
			"kubeproxy_conntrack_reconciler_sync_duration_seconds":                   families("1 0.02", "0 0"),
			"kubeproxy_nftables_localhost_nodeport_listener_creation_failures_total": families(1, 0),
			"kubeproxy_nftables_localhost_nodeport_listeners":                        families(3, 2),
			"kubeproxy_sync_full_proxy_rules_duration_seconds":                       families("1 0.003", "1 0.003"),
			"kubeproxy_sync_partial_proxy_rules_duration_seconds":                    families("1 0.003", "1 0.003"),
			"kubeproxy_sync_proxy_rules_endpoint_changes_pending":                    {"{} 5"},
			"kubeproxy_sync_proxy_rules_endpoint_changes_total":                      {"{} 4"},
			"kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total":             families(0, 0),
			"kubeproxy_proxy_livez_total":                                            {`{code="200"} 1`, `{code="503"} 0`},
			"vmapd_batch_operations_total":                                           families(5000, 40),
			"vmapd_build_info":                                                       {`{revision="91e6221",version="v0.4.1+dirty"} 1`},
			"vmapd_refused_service_ports":                                            families(1, 0),
			"vmapd_rejected_objects":                                                 {`{kind="Service"} 2`},
			"vmapd_repairs_total":                                                    families(2, 0),
		},
		config.IPTables: {
			"kubeproxy_iptables_ct_state_invalid_dropped_packets_total":     {"{} 61"},
			"kubeproxy_iptables_localhost_nodeports_accepted_packets_total": {"{} 42"},
			"kubeproxy_sync_proxy_rules_iptables_last": {
				`{ip_family="IPv4",table="filter"} 0`, `{ip_family="IPv4",table="nat"} 4`,
				`{ip_family="IPv6",table="filter"} 0`, `{ip_family="IPv6",table="nat"} 5`,
			},
			"kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total": families(2, 0),
			"kubeproxy_sync_proxy_rules_iptables_restore_failures_total":         families(3, 0),
			"kubeproxy_sync_proxy_rules_iptables_total": {
				`{ip_family="IPv4",table="filter"} 20`, `{ip_family="IPv4",table="nat"} 100`,
				`{ip_family="IPv6",table="filter"} 21`, `{ip_family="IPv6",table="nat"} 101`,
			},
			"vmapd_batch_operations_total": families(600, 10),
			"vmapd_repairs_total":          families(1, 1),
		},
	} {
		expect(t, string(backend), fed(all(backend)), want)
	}
}

func TestEndpointsOverTheirBudget(t *testing.T) {
	c := modeltest.Config()
	c.Budgets = model.Budgets{Endpoints: 1}
	m := New(bare(config.NFTables))
	m.Done(round(modeltest.Snapshot(c, objects(
		modeltest.NewSlice("ns1/web-2", "web").TCP("http", 8080).Ready("10.0.0.4", "10.0.0.5"),
	)...), nil))
	expect(t, "two of three endpoints are too many", m, map[string][]string{"vmapd_endpoints_over_budget": families(2, 0)})
}
