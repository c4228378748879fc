package cluster

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

// usualMetrics are those that all components have.
var usualMetrics = []string{
	"kubernetes_build_info", "kubernetes_feature_enabled", "rest_client_requests_total", "rest_client_request_duration_seconds",
	"process_cpu_seconds_total", "process_resident_memory_bytes", "process_start_time_seconds", "go_goroutines", "go_memstats_alloc_bytes",
}

// What a scrape of the running daemon has, after real changes and requests. Each metric of a mode is in
// TestGoldenExposition.
func TestScrapeHasWhatDashboardsKnow(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"nftables", "iptables"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			c := vmapdtest.NewCluster(t)
			m := vmapdtest.NewConfigMap(t, map[string]string{"config.conf": c.Config("mode: "+mode, "featureGates: {SomeGate: true}")})
			p := c.Start(t, "--config", m.Path("config.conf"), "--hostname-override", lab.NodeName)
			p.WaitFor(t, "msg=ready")
			before := c.Scrape(t)
			for range 3 {
				vmapdtest.WantStatus(t, c.Client, vmapdtest.HealthURL+"/healthz", http.StatusOK)
			}
			vmapdtest.WantStatus(t, c.Client, vmapdtest.HealthURL+"/livez", http.StatusOK)
			c.API.Set(vmapdtest.WebSlice(2))
			web := c.Service(t, "web")
			web.Spec.Ports[0].NodePort = 30081
			c.API.Set(web)

			grown := func(name string, by float64, labels ...string) {
				t.Helper()
				old, _ := vmapdtest.Value(before, "kubeproxy_"+name, labels...)
				vmapdtest.Eventually(t, func() string {
					if now, ok := vmapdtest.Value(c.Scrape(t), "kubeproxy_"+name, labels...); !ok || now < old+by {
						return fmt.Sprintf("%s%v is %v after %v; want %v more", name, labels, now, old, by)
					}
					return ""
				})
			}
			grown("sync_proxy_rules_service_changes_total", 1)
			grown("sync_proxy_rules_endpoint_changes_total", 1)
			grown("sync_proxy_rules_duration_seconds", 1, "ip_family=IPv4")
			grown("sync_partial_proxy_rules_duration_seconds", 1, "ip_family=IPv4")
			grown("network_programming_duration_seconds", 1, "ip_family=IPv4")
			grown("proxy_healthz_total", 3, "code=200")
			grown("proxy_livez_total", 1, "code=200")
			now := float64(time.Now().Unix())
			all := c.Scrape(t)
			for _, name := range []string{"sync_proxy_rules_last_timestamp_seconds", "sync_proxy_rules_last_queued_timestamp_seconds"} {
				if at, _ := vmapdtest.Value(all, "kubeproxy_"+name, "ip_family=IPv6"); now-at > 120 || at > now+1 {
					t.Errorf("%s: %v, and now it is %v", name, at, now)
				}
			}
			if at, _ := vmapdtest.Value(all, "vmapd_apiserver_last_response_timestamp_seconds", "resource=services"); now-at > 120 || at > now+1 {
				t.Errorf("the API server's last response about Services: %v, and now it is %v", at, now)
			}
			vmapdtest.Eventually(t, func() string {
				if _, ok := vmapdtest.Value(c.Scrape(t), "vmapd_doctor_findings", "check=firewall", "level=fail"); !ok {
					return "the node was not examined"
				}
				return ""
			})
			if got := vmapdtest.Get(c.Client, "http://"+lab.NodeIP4+":10249/metrics"); got.Err == nil {
				t.Errorf("metrics can be read from elsewhere: %v", got)
			}
			if v, _ := vmapdtest.Value(all, "vmapd_ready", "ip_family=IPv4"); v != 1 {
				t.Errorf("vmapd_ready is %v", v)
			}
			if v, _ := vmapdtest.Value(all, "vmapd_backend_info", "backend="+mode); v != 1 {
				t.Errorf("vmapd_backend_info{backend=%q} is %v", mode, v)
			}
			for _, name := range usualMetrics {
				if all[name] == nil {
					t.Errorf("no %s", name)
				}
			}
		})
	}
}
