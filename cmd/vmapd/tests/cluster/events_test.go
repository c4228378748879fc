package cluster

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

// A role that was made for another version may lack the right to write events. That is told
// once, and harms nothing.
func TestWithoutPermissionForEventsAllElseWorks(t *testing.T) {
	t.Parallel()
	rules := slices.DeleteFunc(vmapdtest.DeployedRules(t),
		func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "events") })
	c := vmapdtest.NewCluster(t, rules...)
	p := c.StartReady(t)
	c.Ask(t, vmapdtest.WebVIP)
	p.WaitFor(t, "forbidden")
	c.API.Set(vmapdtest.WebSlice(3))
	vmapdtest.Eventually(t, func() string {
		if a := c.Ask(t, vmapdtest.WebVIP); a.Pod != "pod-2" {
			return "what is left of web is answered by " + a.Pod
		}
		return ""
	})
	if n := strings.Count(p.Log.String(), "forbidden"); n != 1 {
		t.Errorf("it is said %d times", n)
	}
	vmapdtest.WantStatus(t, c.Client, vmapdtest.HealthURL+"/healthz", http.StatusOK)
	p.MustStay(t)
}

// A Service may have the node's own address, also where that takes the connections of one of its processes.
func TestAServiceOnAPortOfTheNode(t *testing.T) {
	t.Parallel()
	c := vmapdtest.NewCluster(t)
	var sshd net.Listener
	if err := c.Node.Do(func() (err error) {
		sshd, err = net.Listen("tcp", ":22")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sshd.Close() })
	p := c.StartReady(t)
	web := c.Service(t, "web")
	web.Spec.ExternalIPs = []string{lab.NodeIP4}
	web.Spec.Ports[0].Port = 22
	c.API.Set(web)
	vmapdtest.WaitUntil(t, "the Service is served, as by kube-proxy", func() bool {
		a, err := c.Client.Ask(t.Context(), "tcp", netip.MustParseAddrPort(lab.NodeIP4+":22"))
		return err == nil && a.Pod != ""
	})
	p.MustStay(t)
}
