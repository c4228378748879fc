package cluster

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

// A port that somebody else has is a matter of its Service alone: the node is ready, the
// Service has an event, a metric says how many ports are missing, all else is served, and
// so is the port soon after it is free.
func TestATakenPortOnLocalhost(t *testing.T) {
	t.Parallel()
	c := vmapdtest.NewCluster(t)
	var taken net.Listener
	if err := c.Node.Do(func() (err error) {
		taken, err = net.Listen("tcp", "127.0.0.1:30080")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	const healthCheckPort = 32000
	web := c.Service(t, "web")
	web.Spec.ExternalTrafficPolicy, web.Spec.HealthCheckNodePort = corev1.ServiceExternalTrafficPolicyLocal,
		healthCheckPort
	c.API.Set(web)
	p := c.StartReady(t, "--nodeport-addresses", "primary,localhost")
	e := c.WantEvent(t, "FailedToStartNodePortListener", "Service", "web", "127.0.0.1:30080")
	if e.Type != corev1.EventTypeWarning || e.Action != "Listen" || e.Namespace != "default" || !strings.Contains(e.Note,
		"address already in use") {
		t.Errorf("the event: %+v", e)
	}
	missing := func(want float64) {
		t.Helper()
		vmapdtest.Eventually(t, func() string {
			if got, ok := vmapdtest.Value(c.Scrape(t), "vmapd_localhost_nodeport_listeners_missing", "ip_family=IPv4"); !ok ||
				got != want {
				return fmt.Sprintf("missing listeners: want %v, got %v", want, got)
			}
			return ""
		})
	}
	missing(1)
	for _, url := range []string{vmapdtest.HealthURL + "/readyz", fmt.Sprintf("http://%s:%d", lab.NodeIP4,
		healthCheckPort)} {
		vmapdtest.WantStatus(t, c.Client, url, http.StatusOK)
	}
	if got, _ := vmapdtest.Value(c.Scrape(t), "vmapd_sync_failures_total", "ip_family=IPv4"); got != 0 {
		t.Errorf("want no failed round, got %v", got)
	}
	c.Ask(t, vmapdtest.WebVIP)
	c.Ask(t, vmapdtest.WebNodePort)
	for _, to := range []struct{ network, at string }{{"tcp", "[::1]:30080"}, {"udp", "127.0.0.1:30080"}} {
		if a, err := c.Node.Ask(t.Context(), to.network, netip.MustParseAddrPort(to.at)); err != nil {
			t.Errorf("%s %s: %+v, %v", to.network, to.at, a, err)
		}
	}

	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	missing(0)
	if a, err := c.Node.Ask(t.Context(), "tcp", netip.MustParseAddrPort("127.0.0.1:30080")); err != nil {
		t.Errorf("once the port is free: %+v, %v", a, err)
	}
	if n := strings.Count(p.Log.String(), "cannot listen; retrying"); n != 1 {
		t.Errorf("it is said %d times that a port is taken:\n%s", n, p.Log)
	}
	p.MustStay(t)
}
