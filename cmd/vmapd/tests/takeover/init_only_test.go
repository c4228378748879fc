package takeover

import (
	"os"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// An init container sets the node up, and the daemon gets by with CAP_NET_ADMIN alone.
func TestInitOnlyLeavesNothingToSetUp(t *testing.T) {
	t.Parallel()
	c := vmapdtest.NewCluster(t)
	// How many connections there are at most, only the initial namespace may say.
	settings := []string{
		"--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=2h", "--conntrack-tcp-timeout-close-wait=90s", "--conntrack-udp-timeout=40s",
		"--conntrack-tcp-be-liberal", "--socket=", "--kubeconfig", c.Kubeconfig(), "--hostname-override", lab.NodeName, "--oom-score-adj", oomScore(t),
	}
	first := c.Start(t, append([]string{"--init-only"}, settings...)...)
	if code := first.Exit(t); code != 0 {
		t.Fatalf("--init-only: exit code %d: %s", code, first.Log)
	}
	for name, want := range map[string]string{
		"tcp_timeout_established": "7200", "tcp_timeout_close_wait": "90", "udp_timeout": "40", "tcp_be_liberal": "1",
	} {
		if got := c.Read(t, "/proc/sys/net/netfilter/nf_conntrack_"+name); got != want {
			t.Errorf("%s is %s after --init-only, want %s", name, got, want)
		}
	}
	if got := c.Ruleset(t); got != "" {
		t.Errorf("--init-only programmed something:\n%s", got)
	}
	if asked := c.API.Requests(""); len(asked) > 0 {
		t.Errorf("--init-only asked the API server: %v", asked)
	}

	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(program, dir+"/vmapd"); err != nil {
		t.Fatal(err)
	}
	p := vmapdtest.Launch(t, c.Node, "setpriv", append([]string{
		"setpriv", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all,+net_admin", dir + "/vmapd",
	}, settings...)...)
	p.WaitFor(t, "msg=ready")
	c.Ask(t, vmapdtest.WebVIP)
	c.Ask(t, vmapdtest.WebNodePort)
	for _, text := range []string{"changed node setting", "could not set", "OOM", "level=ERROR"} {
		if strings.Contains(p.Log.String(), text) {
			t.Errorf("with CAP_NET_ADMIN alone, the log says %q:\n%s", text, p.Log)
		}
	}
	if status := c.Read(t, "/proc/"+p.Pid()+"/status"); !strings.Contains(status, "CapEff:\t0000000000001000\n") {
		t.Errorf("vmapd has other capabilities than CAP_NET_ADMIN:\n%s", status)
	}
}

func oomScore(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(testaid.Read(t, "/proc/self/oom_score_adj"))
}
