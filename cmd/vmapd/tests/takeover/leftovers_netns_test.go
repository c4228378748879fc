package takeover

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/internal/testbed/labtest"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

// kubeProxys matches a line of kube-proxy's in a listing: a chain of its own, a rule in it, or
// a rule that leads there.
var kubeProxys = regexp.MustCompile(`(?m)^((:|-A )KUBE-` + kubeProxysChains + `.*|-A .* -[jg] KUBE-` +
	kubeProxysChains + `\S*)\n`)

const kubeProxysChains = `(SERVICES|EXTERNAL-SERVICES|NODEPORTS|POSTROUTING|MARK-MASQ|FORWARD|` +
	`PROXY-|SVC-|SVL-|SEP-|EXT-|FW-)`

// tablesOf sorts a listing by tables, and takes away the comments and counters of policies.
func tablesOf(listing string) string {
	tables := strings.SplitAfter(countersAndComments.ReplaceAllString(listing, ""), "COMMIT\n")
	slices.Sort(tables)
	return strings.Join(tables, "")
}

const cartNodePort = lab.NodeIP4 + ":30088"

// What kube-proxy left in iptables goes, in both variants, as its tables do, and a node port of a Service that was
// deleted meanwhile no longer answers. The rules of others stay, byte for byte.
func TestKubeProxysRulesGo(t *testing.T) {
	for _, variant := range []string{"nft", "legacy"} {
		for _, how := range []string{"by the daemon", "by cleanup"} {
			t.Run(variant+" "+how, func(t *testing.T) {
				w := labtest.New(t)
				vmapdtest.LeaveRules(t, w.Node, variant)
				vmapdtest.Feed(t, w.Node, "", "nft", "-f", "testdata/kube-proxy.nft")
				if _, err := w.Client.Ask(t.Context(), "tcp", netip.MustParseAddrPort(cartNodePort)); err != nil {
					t.Fatalf("kube-proxy's rules don't work: %v", err)
				}
				t.Run("", func(t *testing.T) {
					if how == "by the daemon" {
						p := vmapdtest.StartDemo(t, w.Node)
						vmapdtest.Stop(t, p)
						return
					}
					args := []string{"cleanup"}
					if variant == "legacy" { // kube-proxy's flag takes a configuration whose cluster need not be there
						files := vmapdtest.NewConfigMap(t, map[string]string{"config.conf": stock(t, "kubeadm-1.37")})
						args = []string{"--config", files.Path("config.conf"), "--cleanup"}
					}
					clean := vmapdtest.Start(t, w.Node, args...)
					if err := clean.Cmd.Wait(); err != nil {
						t.Fatalf("cleanup: %v\n%s", err, clean.Log)
					}
				})
				if a, err := w.Client.Ask(t.Context(), "tcp", netip.MustParseAddrPort(cartNodePort)); err == nil {
					t.Errorf("the node port of a deleted Service answers: %+v", a)
				}
				if tables := vmapdtest.ListRuleset(t, w.Node); strings.Contains(tables, "kube-proxy") || !strings.Contains(tables,
					"table ip other") {
					t.Errorf("want no table kube-proxy, and the other one, got:\n%s", tables)
				}
				for program := range vmapdtest.LeftBehind {
					want := kubeProxys.ReplaceAllString(vmapdtest.AsKubeProxyLeaves(t, program), "")
					got := vmapdtest.Feed(t, w.Node, "", program+"-"+variant+"-save")
					if diff := cmp.Diff(tablesOf(want), tablesOf(got)); diff != "" {
						t.Errorf("%s (-want +got):\n%s", program, diff)
					}
				}
			})
		}
	}
}
