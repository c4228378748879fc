package takeover

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

// A kube-proxy that writes its rules again after vmapd has removed them is noticed; that a process has the port for the
// health check is no sign of one. vmapd removes its rules once; its own rules work all the time.
func TestAnotherProxyIsNoticed(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short: takes a minute")
	}
	for _, variant := range []string{"nft", "legacy"} {
		t.Run(variant, func(t *testing.T) {
			t.Parallel()
			c := vmapdtest.NewCluster(t)
			var port net.Listener
			err := c.Node.Do(func() (err error) {
				port, err = net.Listen("tcp", ":10256")
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = port.Close() }()
			vmapdtest.LeaveRules(t, c.Node, variant)
			rules := vmapdtest.KubeProxyServices(t, c.Node, variant)
			socket := filepath.Join(t.TempDir(), "vmapd.sock")
			c.StartReady(t, "--socket", socket)
			metrics := func() string { return vmapdtest.Get(c.Node, vmapdtest.MetricsURL+"/metrics").Body }
			if n := vmapdtest.KubeProxyServices(t, c.Node, variant); n != 0 || rules == 0 {
				t.Fatalf("%d rules of %d are left", n, rules)
			}
			finding := `vmapd_doctor_findings{check="other-proxies",level="fail"} `
			vmapdtest.WaitUntil(t, "no finding", func() bool { return strings.Contains(metrics(), finding+"0") })

			vmapdtest.LeaveRules(t, c.Node, variant)
			c.WantEvent(t, "OtherProxy", "Node", lab.NodeName, "objects came back after they had been removed: of kube-proxy")
			if n := vmapdtest.KubeProxyServices(t, c.Node, variant); n != rules {
				t.Errorf("%d rules of %d are left, and vmapd only looks", n, rules)
			}
			vmapdtest.WaitUntil(t, "the metric has it", func() bool { return strings.Contains(metrics(), finding+"1") })
			text := vmapdtest.Problems(vmapdtest.Overview(t, socket))
			for _, want := range []string{"objects came back", "healthz server: ", "of kube-proxy: "} {
				if !strings.Contains(text, want) {
					t.Errorf("status has no %q:\n%s", want, text)
				}
			}
			c.Ask(t, netip.MustParseAddrPort("172.30.0.10:80"))

			_ = port.Close()
			vmapdtest.WantStatus(t, c.Client, vmapdtest.HealthURL+"/readyz", http.StatusOK)
		})
	}
}

// An ipset of kube-proxy that can't be destroyed is counted, with one event, and fails no round;
// cleanup fails.
func TestAnIPSetThatCannotBeDestroyed(t *testing.T) {
	if _, err := exec.LookPath("ipset"); err != nil {
		t.Fatal(err)
	}
	t.Parallel()
	c := vmapdtest.NewCluster(t)
	for _, args := range []string{"create KUBE-CLUSTER-IP hash:ip,port", "create KUBE-LOOP-BACK hash:ip,port,ip", "create OTHERS list:set", "add OTHERS KUBE-CLUSTER-IP", "create KUBE-SRC-2FAIIK2E4RIPMTGF hash:ip"} {
		vmapdtest.Feed(t, c.Node, "", "ipset", strings.Fields(args)...)
	}
	// A set that only a rule of kube-proxy's uses can be destroyed soon after that one.
	for _, variant := range []string{"nft", "legacy"} {
		vmapdtest.Feed(t, c.Node, "*nat\n:KUBE-POSTROUTING - [0:0]\n:KUBE-LOAD-BALANCER - [0:0]\n-A POSTROUTING -j KUBE-POSTROUTING\n"+
			"-A KUBE-POSTROUTING -m set --match-set KUBE-LOOP-BACK dst,dst,src -j MASQUERADE\nCOMMIT\n", "iptables-"+variant+"-restore")
	}
	p := c.StartReady(t)
	c.WantEvent(t, "LeftoversNotRemoved", "Node", lab.NodeName, "1 × ipset")
	for _, page := range []string{"/readyz", "/livez"} {
		vmapdtest.WantStatus(t, c.Client, vmapdtest.HealthURL+page, http.StatusOK)
	}
	if got := vmapdtest.Get(c.Node, vmapdtest.MetricsURL+"/metrics").Body; !strings.Contains(got, `vmapd_doctor_findings{check="other-proxies",level="warn"} 1`) || !strings.Contains(got, `vmapd_sync_failures_total{ip_family="IPv4"} 0`) {
		t.Errorf("metrics:\n%s", got)
	}
	if got := strings.Fields(vmapdtest.Feed(t, c.Node, "", "ipset", "list", "-n")); fmt.Sprint(slices.Sorted(slices.Values(got))) != "[KUBE-CLUSTER-IP KUBE-SRC-2FAIIK2E4RIPMTGF OTHERS]" {
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
	for _, want := range []string{"destroy KUBE-CLUSTER-IP", "still there: of kube-proxy: 1 × ipset; remove them on the node"} {
		if !strings.Contains(clean.Log.String(), want) {
			t.Errorf("cleanup does not say %q:\n%s", want, clean.Log)
		}
	}
}
