package cluster

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

// Who has a problem with a Service finds it there, and it is told once.
func TestEventsOverHTTP(t *testing.T) {
	t.Parallel()
	c := vmapdtest.NewCluster(t)
	web := c.Service(t, "web")
	second := web.DeepCopy()
	web.CreationTimestamp = metav1.Unix(1_700_000_000, 0)
	second.Name, second.CreationTimestamp = "second", metav1.Unix(1_800_000_000, 0)
	second.UID = "6f9e2a54-0000-4000-8000-000000000002"
	second.Spec.ClusterIP, second.Spec.ClusterIPs = "172.30.0.12", []string{"172.30.0.12", "fd00:172:30::12"}
	c.API.Set(web)
	c.API.Set(second)
	p := c.StartReady(t)

	start := c.WantEvent(t, "Starting", "Node", lab.NodeName, "nftables")
	if start.Namespace != "default" || start.ReportingController == "" || !strings.Contains(start.ReportingInstance,
		lab.NodeName) {
		t.Errorf("the event of the start: %+v", start)
	}
	conflict := c.WantEvent(t, "FrontendConflict", "Service", "second", "default/web")
	if conflict.Type != "Warning" || conflict.Namespace != "default" || conflict.Regarding.Namespace != "default" ||
		conflict.Action == "" {
		t.Errorf("the event about the conflict: %+v", conflict)
	}
	// kubectl describe service selects events by the UID.
	if conflict.Regarding.UID != second.UID {
		t.Errorf("the event is about the UID %q, want %q", conflict.Regarding.UID, second.UID)
	}
	if all := c.API.Events(); slices.ContainsFunc(all, func(e eventsv1.Event) bool { return e.Regarding.Name == "web" }) {
		t.Errorf("the oldest has done nothing wrong: %+v", all)
	}
	// Whoever mends it is served.
	second.Spec.ExternalIPs, second.Status.LoadBalancer.Ingress = nil, nil
	for i := range second.Spec.Ports {
		second.Spec.Ports[i].NodePort = 0
	}
	c.API.Set(second)
	p.WaitFor(t, "no longer a problem")
	c.Ask(t, vmapdtest.WebVIP)
}

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
