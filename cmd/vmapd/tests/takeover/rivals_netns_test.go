package takeover

import (
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

// An ipset of kube-proxy that can't be destroyed is counted, with one event, and fails no round;
// cleanup fails.
func TestAnIPSetThatCannotBeDestroyed(t *testing.T) {
	t.Parallel()
	c := vmapdtest.NewCluster(t)
	for _, args := range []string{
		"create KUBE-CLUSTER-IP hash:ip,port", "create KUBE-LOOP-BACK hash:ip,port,ip",
		"create OTHERS list:set", "add OTHERS KUBE-CLUSTER-IP", "create KUBE-SRC-2FAIIK2E4RIPMTGF hash:ip",
	} {
		vmapdtest.Feed(t, c.Node, "", "ipset", strings.Fields(args)...)
	}
	// A set that only a rule of kube-proxy's uses can be destroyed soon after that one.
	for _, variant := range []string{"nft", "legacy"} {
		vmapdtest.Feed(t, c.Node, "*nat\n:KUBE-POSTROUTING - [0:0]\n:KUBE-LOAD-BALANCER - [0:0]\n-A POSTROUTING -j "+
			"KUBE-POSTROUTING\n"+
			"-A KUBE-POSTROUTING -m set --match-set KUBE-LOOP-BACK dst,dst,src -j MASQUERADE\nCOMMIT\n",
			"iptables-"+variant+"-restore")
	}
	p := c.StartReady(t)
	c.WantEvent(t, "LeftoversNotRemoved", "Node", lab.NodeName, "1 × ipset")
	for _, page := range []string{"/readyz", "/livez"} {
		vmapdtest.WantStatus(t, c.Client, vmapdtest.HealthURL+page, http.StatusOK)
	}
	if got := vmapdtest.Get(c.Node, vmapdtest.MetricsURL+"/metrics").Body; !strings.Contains(got,
		`vmapd_doctor_findings{check="other-proxies",level="warn"} 1`) || !strings.Contains(got,
		`vmapd_sync_failures_total{ip_family="IPv4"} 0`) {
		t.Errorf("metrics:\n%s", got)
	}
	if got := strings.Fields(vmapdtest.Feed(t, c.Node, "", "ipset", "list",
		"-n")); fmt.Sprint(slices.Sorted(slices.Values(got))) != "[KUBE-CLUSTER-IP KUBE-SRC-2FAIIK2E4RIPMTGF OTHERS]" {
		t.Errorf("ipsets left: %v", got)
	}
	if err := p.Cmd.Process.Signal(syscall.SIGTERM); err != nil || p.Exit(t) != 0 {
		t.Fatalf("vmapd does not end: %v\n%s", err, p.Log)
	}
	clean := vmapdtest.Start(t, c.Node, "cleanup")
	var failed *exec.ExitError
	if err := clean.Cmd.Wait(); !errors.As(err, &failed) || failed.ExitCode() != 1 {
		t.Errorf("cleanup: %v", err)
	}
	for _, want := range []string{
		"destroy KUBE-CLUSTER-IP",
		"still there: of kube-proxy: 1 × ipset; remove them on the node",
	} {
		if !strings.Contains(clean.Log.String(), want) {
			t.Errorf("cleanup does not say %q:\n%s", want, clean.Log)
		}
	}
}
