package cluster

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

// A load balancer asks each node for a Service's local endpoints.
func TestLoadBalancersAskForLocalEndpoints(t *testing.T) {
	t.Parallel()
	c := vmapdtest.NewCluster(t)
	web := c.Service(t, "web")
	local := func(port int32) {
		web.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		web.Spec.HealthCheckNodePort = port
		c.API.Set(web)
	}
	slice6 := vmapdtest.WebSlice() // each family counts its own pods
	slice6.Name, slice6.AddressType = "web-ipv6", "IPv6"
	c.API.Set(slice6)
	c.API.Set(vmapdtest.WebSlice(2, 3))
	local(32000)
	p := c.StartReady(t)
	expect := func(ip string, port, status, weight int) {
		t.Helper()
		vmapdtest.Eventually(t, func() string {
			got := vmapdtest.Get(c.Client, "http://"+net.JoinHostPort(ip, fmt.Sprint(port))+"/any/path")
			local := fmt.Sprintf("\"localEndpoints\": %d,", weight)
			if got.Status == status && strings.Contains(got.Body, local) &&
				got.Header.Get("X-Load-Balancing-Endpoint-Weight") == fmt.Sprint(weight) {
				return ""
			}
			return fmt.Sprintf("port %d of %s: %v %v; want %d with weight %d", port, ip, got, got.Header, status, weight)
		})
	}
	expect(lab.NodeIP4, 32000, http.StatusOK, 2)
	expect(lab.NodeIP6, 32000, http.StatusServiceUnavailable, 0)

	// Endpoints that terminate still serve those who come, but attract nobody.
	terminating := vmapdtest.WebSlice(2)
	terminating.Endpoints[0].Conditions.Ready = new(false)
	terminating.Endpoints[0].Conditions.Serving = new(true)
	terminating.Endpoints[0].Conditions.Terminating = new(true)
	c.API.Set(terminating)
	expect(lab.NodeIP4, 32000, http.StatusServiceUnavailable, 0)
	c.Ask(t, vmapdtest.WebNodePort)
	c.API.Set(vmapdtest.WebSlice(2, 3, 4))

	// Somebody else has the port.
	var taken net.Listener
	if err := c.Node.Do(func() (err error) {
		taken, err = net.Listen("tcp", lab.NodeIP4+":32002")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	local(32002)
	e := c.WantEvent(t, "FailedToStartServiceHealthcheck", "Service", "web", "32002")
	if e.Type != corev1.EventTypeWarning || e.Action != "Listen" || e.Namespace != "default" {
		t.Errorf("the event: %+v", e)
	}
	c.Ask(t, vmapdtest.WebNodePort)
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	expect(lab.NodeIP4, 32002, http.StatusOK, 3)
	p.MustStay(t)
}
