package main

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

// occupy listens on addresses of the node until the test ends.
func (c *apiCluster) occupy(t *testing.T, addrs ...string) {
	t.Helper()
	for _, a := range addrs {
		err := c.Node.Do(func() error {
			l, err := net.Listen("tcp", a)
			if err == nil {
				t.Cleanup(func() { _ = l.Close() })
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Ports that others have, a set of kube-proxy's that is in use, and an API server that takes no
// events: for none of these, a round fails. The node is live and ready, also when a failure would
// have lasted for longer than a change may wait; what can be done is done.
func TestWhatIsSecondaryFailsNoRound(t *testing.T) {
	t.Parallel()
	rules := slices.DeleteFunc(proxierRules(), func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "events") })
	c := startCluster(t, rules...)
	const takenCheck, freeCheck = 32000, 32001
	c.occupy(t, "127.0.0.1:30080", fmt.Sprintf("%s:%d", lab.NodeIP4, takenCheck), "127.0.0.1:10249")
	feed(t, c.Node, "", "ipset", "create", "KUBE-CLUSTER-IP", "hash:ip,port")
	feed(t, c.Node, "", "iptables-legacy", "-A", "INPUT", "-m", "set", "--match-set", "KUBE-CLUSTER-IP", "dst,dst", "-j", "ACCEPT")

	const port = 9000
	sinks := map[byte]*lab.Sink{}
	for i, pod := range c.Pods() {
		s, err := pod.Sink(port)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		sinks[byte(2+i)] = s
	}
	web := c.service(t, "web")
	web.Spec.ExternalTrafficPolicy, web.Spec.HealthCheckNodePort = corev1.ServiceExternalTrafficPolicyLocal, takenCheck
	c.api.Set(web)
	only := func(pod byte) {
		s := webSlice(pod)
		*s.Ports[1].Port = port
		c.api.Set(s)
	}
	only(2)
	p := c.start(t, "--kubeconfig", c.kubeconfig(), "--hostname-override", lab.NodeName, "--nodeport-addresses", "primary,localhost")
	p.waitFor(t, "msg=ready")
	p.waitFor(t, "cannot listen on a node port on loopback")
	p.waitFor(t, "cannot listen on health-check port")

	stream, err := c.Client.Stream("metric", netip.MustParseAddrPort(lab.ClientIP4+":20000"), webVIP, stepOfStream)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stream.Close)
	arrives := func(at byte) {
		t.Helper()
		before := sinks[at].Heard("metric")
		eventually(t, func() string {
			if sinks[at].Heard("metric") < before+10 {
				return "what is sent to web does not arrive at its only endpoint"
			}
			return ""
		})
	}
	arrives(2)
	only(3)
	arrives(3)

	const longerThanAChangeMayWait = 66 * time.Second
	for begin := time.Now(); time.Since(begin) < longerThanAChangeMayWait; time.Sleep(time.Second) {
		for _, page := range []string{"/livez", "/healthz", "/readyz"} {
			if got := get(c.Client, nil, healthURL+page); got.status != http.StatusOK {
				t.Fatalf("%s after %v: %v\n%s", page, time.Since(begin), got, p.log)
			}
		}
	}
	only(2)
	arrives(2)
	c.ask(t, webNodePort)
	web.Spec.HealthCheckNodePort = freeCheck
	c.api.Set(web)
	wantStatus(t, c.Client, fmt.Sprintf("http://%s:%d/", lab.NodeIP4, freeCheck), http.StatusOK)
	p.mustStay(t)
}
