package cluster

import (
	"net/http"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/internal/testbed/labtest"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

// Paths of the two ports and their status; TestPages of internal/metricsport has the pages of the metrics port.
var (
	metricsPaths = map[string]int{
		"/healthz": http.StatusOK, "/metrics": http.StatusOK, "/metrics/slis": http.StatusOK, "/proxyMode": http.StatusOK,
		"/configz": http.StatusOK, "/flagz": http.StatusOK, "/statusz": http.StatusOK,
		"/debug/pprof/": http.StatusOK, "/debug/pprof/cmdline": http.StatusOK, "/debug/pprof/symbol": http.StatusOK,
		"/debug/pprof/profile?seconds=1": http.StatusOK, "/debug/pprof/trace?seconds=1": http.StatusOK,
		"/debug/pprof/goroutine?debug=2": http.StatusOK, "/debug/flags/v": http.StatusMethodNotAllowed,
	}
	healthPaths = map[string]int{"/healthz": http.StatusOK, "/livez": http.StatusOK, "/readyz": http.StatusOK}
	// At the socket alone.
	socketPaths = []string{
		"/", "/api/status", "/api/services", "/api/service?namespace=default&name=xyzzy", "/api/doctor",
		"/v1/status", "/v1/services", "/v1/endpoints", "/v1/connections", "/v1/explain", "/v1/doctor",
	}
)

// Who reaches a port learns no name of a Service, except from the metrics with --service-counters.
func TestThePortsNameNoService(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	vmapdtest.EditDemo(t, dir, func(text string) string { return strings.ReplaceAll(text, "web", "xyzzy") })
	for name, counters := range map[string]bool{"without counters": false, "with counters": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := labtest.New(t)
			args := []string{
				"--backend=nftables", "--from", dir, "--hostname-override", lab.NodeName, "--socket=",
				"--profiling",
			}
			if counters {
				args = append(args, "--service-counters")
			}
			vmapdtest.Start(t, w.Node, args...).WaitFor(t, "msg=ready")
			check := func(url string, want int, names bool) {
				t.Helper()
				got := vmapdtest.WantStatus(t, w.Node, url, want)
				if strings.Contains(got.Body, "xyzzy") != names {
					t.Errorf("%s names a Service: %v, want %v", url, !names, names)
				}
			}
			for path, want := range metricsPaths {
				check(vmapdtest.MetricsURL+path, want, counters && path == "/metrics")
			}
			for path, want := range healthPaths {
				check(vmapdtest.HealthURL+path, want, false)
			}
			for _, path := range socketPaths {
				check(vmapdtest.MetricsURL+path, http.StatusNotFound, false)
				check(vmapdtest.HealthURL+path, http.StatusNotFound, false)
			}
		})
	}
}
