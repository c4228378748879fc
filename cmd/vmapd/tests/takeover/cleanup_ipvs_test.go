package takeover

import (
	"fmt"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/internal/testbed/labtest"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

// With kube-proxy's device, the virtual servers are its own, as nothing tells whose they are;
// without, they are vmapd's.
func TestCleanupOfWhatIsLeftByIPVS(t *testing.T) {
	vmapdtest.NeedIPVS(t)
	for _, kubeProxyToo := range []bool{true, false} {
		t.Run(fmt.Sprintf("kube-proxy too: %v", kubeProxyToo), func(t *testing.T) {
			w := labtest.New(t)
			from := []string{"--backend=ipvs", "--from", "testdata/local.yaml", "--hostname-override", lab.NodeName}
			p := vmapdtest.StartReady(t, w.Node, from...)
			vmapdtest.Stop(t, p)
			if kubeProxyToo {
				vmapdtest.Feed(t, w.Node, "", "ip", "link", "add", "kube-ipvs0", "type", "dummy")
				vmapdtest.Feed(t, w.Node, "", "ipset", "create", "KUBE-CLUSTER-IP", "hash:ip,port")
			}
			before := vmapdtest.Feed(t, w.Node, "", "ipvsadm", "-Sn")
			if !strings.Contains(before, "-A -t 192.168.99.12:80 ") {
				t.Fatalf("want a virtual server:\n%s", before)
			}
			vmapdtest.Cleanup(t, w.Node, "--keep-kube-proxy")
			for _, program := range []string{"ip -br link", "ipset list -n", "iptables-save", "ip6tables-save"} {
				words := strings.Fields(program)
				out := vmapdtest.Feed(t, w.Node, "", words[0], words[1:]...)
				if strings.Contains(strings.ToLower(out), "vmapd") {
					t.Errorf("%s lists something of vmapd's:\n%s", program, out)
				}
				if kubeProxyToo && strings.HasPrefix(program, "ip ") != strings.Contains(out, "kube-ipvs0") ||
					kubeProxyToo && strings.HasPrefix(program, "ipset ") != strings.Contains(out, "KUBE-CLUSTER-IP") {
					t.Errorf("%s: is what is kube-proxy's there?\n%s", program, out)
				}
			}
			after := vmapdtest.Feed(t, w.Node, "", "ipvsadm", "-Sn")
			if strings.Contains(after, "192.168.99.12:80") != kubeProxyToo {
				t.Errorf("virtual servers:\n%s", after)
			}
		})
	}
}
