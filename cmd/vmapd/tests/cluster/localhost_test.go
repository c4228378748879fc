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
	"github.com/vmapd/vmapd/cmd/internal/testbed/labtest"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

// Node ports on loopback, which scenarios find refused, are served where the daemon is told to serve them: all
// endpoints answer there, over TCP and UDP, in both families, and nobody else's way to
// them changes.
func TestNodePortsOnLocalhost(t *testing.T) {
	w := labtest.New(t)
	loopback := []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:30080"), netip.MustParseAddrPort("[::1]:30080")}
	p := vmapdtest.StartDemo(t, w.Node, "--nodeport-addresses", "primary,localhost")
	for _, to := range append(loopback, netip.MustParseAddrPort(lab.NodeIP4+":30080")) {
		for _, network := range []string{"tcp", "udp"} {
			vmapdtest.Eventually(t, func() string { // the listeners follow the first round
				if _, err := w.Node.Ask(t.Context(), network, to); err != nil {
					return fmt.Sprintf("%s %v: %v", network, to, err)
				}
				return ""
			})
			pods := map[string]bool{}
			for tries := 0; tries < 60 && len(pods) < len(w.Pods()); tries++ {
				a, err := w.Node.Ask(t.Context(), network, to)
				if err != nil {
					t.Fatalf("%s %v: %v\n%s", network, to, err, p.Log)
				}
				pods[a.Pod] = true
			}
			if len(pods) != len(w.Pods()) {
				t.Errorf("%s %v: %v answered, want all of %d", network, to, pods, len(w.Pods()))
			}
		}
	}
	// A connection that comes in from outside can't reach loopback.
	if a, err := w.Client.Ask(t.Context(), "tcp", netip.MustParseAddrPort(lab.NodeIP4+":30080")); err != nil {
		t.Errorf("the client at the node port: %+v, %v", a, err)
	}
	vmapdtest.Stop(t, p)
	if a, err := w.Node.Ask(t.Context(), "tcp", loopback[0]); lab.FailureOf(err) != lab.Refused {
		t.Errorf("after the daemon's end: got answer %+v, error %v, want it refused", a, err)
	}
}

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
