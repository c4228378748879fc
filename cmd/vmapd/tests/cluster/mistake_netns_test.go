package cluster

import (
	"os"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/model/nettest"
)

// A mistake on the command line ends the process before it has changed anything on the node.
func TestAMistakeChangesNothing(t *testing.T) {
	nettest.Need(t)
	path := os.Getenv("PATH")
	manifests := vmapdtest.Demo(t)
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"a path that does not exist", []string{"--from", manifests + "/nowhere"}, "nowhere"},
		{"one of two paths", []string{"--from", manifests, "--from", "/etc/nowhere.yaml"}, "/etc/nowhere.yaml"},
		{"a backend without its programs", []string{"--from", manifests, "--backend=iptables"}, "vmapd's image has it; on a host, install it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ns, err := lab.NewNamespace("node")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = ns.Close() })
			const timeout = "/proc/sys/net/netfilter/nf_conntrack_udp_timeout"
			before := vmapdtest.Feed(t, ns, "", "cat", timeout)
			if strings.Contains(tt.name, "programs") {
				t.Setenv("PATH", t.TempDir()) // as in the image that has only vmapd
			}
			p := vmapdtest.Start(t, ns, append([]string{"--conntrack-udp-timeout=41s", "--hostname-override", lab.NodeName}, tt.args...)...)
			if code := p.Exit(t); code != 1 {
				t.Errorf("exit code %d, want 1", code)
			}
			if !strings.Contains(p.Log.String(), tt.want) {
				t.Errorf("the log does not name %s:\n%s", tt.want, p.Log)
			}
			t.Setenv("PATH", path)
			if got := vmapdtest.Feed(t, ns, "", "cat", timeout); got != before {
				t.Errorf("the UDP timeout is %s, and was %s", strings.TrimSpace(got), strings.TrimSpace(before))
			}
			if got := vmapdtest.ListRuleset(t, ns); got != "" {
				t.Errorf("it programmed something:\n%s", got)
			}
		})
	}
}
