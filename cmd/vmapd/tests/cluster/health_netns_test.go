package cluster

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/google/nftables"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

// Load balancers are told to send no more to a node that is about to go, and the kubelet
// that nothing is wrong with the proxy.
func TestHealthFollowsTheNode(t *testing.T) {
	t.Parallel()
	c := vmapdtest.NewCluster(t)
	p := c.StartReady(t)
	expect := func(when string, healthz int, eligible bool) {
		t.Helper()
		got := vmapdtest.WantStatus(t, c.Client, vmapdtest.HealthURL+"/healthz", healthz)
		if !strings.Contains(got.Body, fmt.Sprintf(`"nodeEligible": %v`, eligible)) {
			t.Errorf("%s: /healthz says %v", when, got)
		}
		vmapdtest.WantStatus(t, c.Client, vmapdtest.HealthURL+"/livez", http.StatusOK)
		vmapdtest.WantStatus(t, c.Client, vmapdtest.HealthURL+"/readyz", http.StatusOK)
		c.Ask(t, vmapdtest.WebVIP)
	}
	expect("at first", http.StatusOK, true)

	tainted := vmapdtest.OurNode()
	tainted.Spec.Taints = []corev1.Taint{{Key: "ToBeDeletedByClusterAutoscaler", Effect: corev1.TaintEffectNoSchedule}}
	c.API.Set(tainted)
	expect("with the taint", http.StatusServiceUnavailable, false)
	other := vmapdtest.OurNode()
	other.Spec.Taints = []corev1.Taint{{Key: "node.kubernetes.io/unschedulable", Effect: corev1.TaintEffectNoSchedule}}
	c.API.Set(other)
	expect("with another taint", http.StatusOK, true)

	deleting := vmapdtest.OurNode()
	deleting.DeletionTimestamp = new(metav1.Now())
	c.API.Set(deleting)
	expect("while it is deleted", http.StatusServiceUnavailable, false)
	c.API.Set(vmapdtest.OurNode())
	expect("at last", http.StatusOK, true)
	p.MustStay(t)
}

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
	// Each family counts its own pods, each once.
	slice6 := vmapdtest.WebSlice()
	slice6.Name, slice6.AddressType = "web-ipv6", "IPv6"
	c.API.Set(slice6)
	c.API.Set(vmapdtest.WebSlice(2, 3))
	local(32000)
	p := c.StartReady(t)

	at := lab.NodeIP4
	url := func(port int32) string {
		return fmt.Sprintf("http://%s/any/path", net.JoinHostPort(at, fmt.Sprint(port)))
	}
	expect := func(port int32, status, weight int) {
		t.Helper()
		body := fmt.Sprintf("{\n\t\"service\": {\n\t\t\"namespace\": \"default\",\n\t\t\"name\": \"web\"\n\t},\n\t\"localEndpoints\": %d,\n\t\"serviceProxyHealthy\": true\n}", weight)
		vmapdtest.Eventually(t, func() string {
			got := vmapdtest.Get(c.Client, url(port))
			if got.Status == status && got.Body == body && got.Header.Get("X-Load-Balancing-Endpoint-Weight") == fmt.Sprint(weight) {
				return ""
			}
			return fmt.Sprintf("port %d: %v %v; want %d with weight %d", port, got, got.Header, status, weight)
		})
	}
	expect(32000, http.StatusOK, 2)
	at = lab.NodeIP6
	expect(32000, http.StatusServiceUnavailable, 0)
	slice6.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{"fd00:10::2"}, NodeName: new(lab.NodeName)}}
	c.API.Set(slice6)
	expect(32000, http.StatusOK, 1)
	at = lab.NodeIP4
	expect(32000, http.StatusOK, 2)
	c.API.Set(vmapdtest.WebSlice(2))
	expect(32000, http.StatusOK, 1)

	// Endpoints that terminate still serve those who come, but attract nobody.
	terminating := vmapdtest.WebSlice(2)
	terminating.Endpoints[0].Conditions.Ready = new(false)
	terminating.Endpoints[0].Conditions.Serving = new(true)
	terminating.Endpoints[0].Conditions.Terminating = new(true)
	c.API.Set(terminating)
	expect(32000, http.StatusServiceUnavailable, 0)
	c.Ask(t, vmapdtest.WebNodePort)
	c.API.Set(vmapdtest.WebSlice(2, 3, 4))
	expect(32000, http.StatusOK, 3)

	local(32001)
	expect(32001, http.StatusOK, 3)
	if got := vmapdtest.Get(c.Client, url(32000)); got.Err == nil {
		t.Errorf("the port of before answers: %v", got)
	}

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
	expect(32002, http.StatusOK, 3)
	p.MustStay(t)
}

// Another process owns the table of one family. Load balancers of the other one are answered.
func TestHealthChecksOfAFamilyWhileTheOtherHasAnotherOwner(t *testing.T) {
	t.Parallel()
	c := vmapdtest.NewCluster(t)
	const owned = 2 // NFT_TABLE_F_OWNER of linux/netfilter/nf_tables.h
	var owner *nftables.Conn
	if err := c.Node.Do(func() (err error) {
		if owner, err = nftables.New(nftables.AsLasting()); err != nil {
			return err
		}
		owner.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv6, Name: "vmapd", Flags: owned})
		return owner.Flush()
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = owner.CloseLasting() })
	web := c.Service(t, "web")
	web.Spec.Type, web.Spec.ExternalTrafficPolicy, web.Spec.HealthCheckNodePort = "LoadBalancer", "Local", 32000
	c.API.Set(web)
	c.API.Set(vmapdtest.WebSlice(2, 3))
	p := c.Start(t, "--kubeconfig", c.Kubeconfig(), "--hostname-override", lab.NodeName)
	vmapdtest.Eventually(t, func() string {
		got := vmapdtest.Get(c.Client, "http://"+lab.NodeIP4+":32000/")
		if got.Status != http.StatusOK || got.Header.Get("X-Load-Balancing-Endpoint-Weight") != "2" {
			return fmt.Sprintf("over IPv4: %v %v, want 200 with 2 endpoints", got, got.Header)
		}
		return ""
	})
	if got := vmapdtest.Get(c.Client, "http://["+lab.NodeIP6+"]:32000/"); got.Err == nil {
		t.Errorf("over IPv6, where nothing is programmed: %v", got)
	}
	p.MustStay(t)
}
