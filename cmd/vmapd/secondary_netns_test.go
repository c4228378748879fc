package main

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/leftovers"
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
	rules := slices.DeleteFunc(deployedRules(t), func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "events") })
	c := startCluster(t, rules...)
	// A change may wait for twice this time. Leftovers are tried again meanwhile.
	const syncPeriod = leftovers.RetryTime/2 + 2*time.Second
	const takenCheck, freeCheck = 32000, 32001
	c.occupy(t, "127.0.0.1:30080", fmt.Sprintf("%s:%d", lab.NodeIP4, takenCheck), "127.0.0.1:10249")
	feed(t, c.Node, "", "ipset", "create", "KUBE-CLUSTER-IP", "hash:ip,port")
	feed(t, c.Node, "", "iptables-legacy", "-A", "INPUT", "-m", "set", "--match-set", "KUBE-CLUSTER-IP", "dst,dst", "-j", "ACCEPT")

	s := newSender(t, c)
	web := c.service(t, "web")
	web.Spec.ExternalTrafficPolicy, web.Spec.HealthCheckNodePort = corev1.ServiceExternalTrafficPolicyLocal, takenCheck
	c.api.Set(web)
	s.only(2)
	p := c.start(t, "--kubeconfig", c.kubeconfig(), "--hostname-override", lab.NodeName, "--nodeport-addresses", "primary,localhost",
		"--iptables-sync-period", syncPeriod.String())
	p.waitFor(t, "msg=ready")
	p.waitFor(t, "cannot listen; retrying")
	p.waitFor(t, "cannot listen on health-check port")

	s.start(t)
	s.arrives(t, 2)
	s.only(3)
	s.arrives(t, 3)

	const longerThanAChangeMayWait = 2*syncPeriod + 3*time.Second
	for begin := time.Now(); time.Since(begin) < longerThanAChangeMayWait; time.Sleep(time.Second) {
		for _, page := range []string{"/livez", "/healthz", "/readyz"} {
			if got := get(c.Client, nil, healthURL+page); got.status != http.StatusOK {
				t.Fatalf("%s after %v: %v\n%s", page, time.Since(begin), got, p.log)
			}
		}
	}
	s.only(2)
	s.arrives(t, 2)
	c.ask(t, webNodePort)
	web.Spec.HealthCheckNodePort = freeCheck
	c.api.Set(web)
	wantStatus(t, c.Client, fmt.Sprintf("http://%s:%d/", lab.NodeIP4, freeCheck), http.StatusOK)
	p.mustStay(t)
}
