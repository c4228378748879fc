package main

import (
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/leftovers"
)

// kubeProxys matches a line of kube-proxy's in a listing: a chain of its own, a rule in it, or
// a rule that leads there.
var kubeProxys = regexp.MustCompile(`(?m)^((:|-A )KUBE-` + kubeProxysChains + `.*|-A .* -[jg] KUBE-` + kubeProxysChains + `\S*)\n`)

const kubeProxysChains = `(SERVICES|EXTERNAL-SERVICES|NODEPORTS|POSTROUTING|MARK-MASQ|FORWARD|PROXY-|SVC-|SVL-|SEP-|EXT-|FW-)`

// leftBehind are the programs of the two families, with what kube-proxy has there.
var leftBehind = map[string]string{"iptables": "iptables.rules", "ip6tables": "ip6tables.rules"}

// asKubeProxyLeaves is a listing of a node on which kube-proxy ran.
func asKubeProxyLeaves(t *testing.T, program string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(testdata(t), "kube-proxy", leftBehind[program]))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// leaveRules puts kube-proxy's rules on a node.
func leaveRules(t *testing.T, node *lab.Namespace, variant string) {
	t.Helper()
	for program := range leftBehind {
		feed(t, node, asKubeProxyLeaves(t, program), program+"-"+variant+"-restore")
	}
}

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
				w := newLab(t)
				leaveRules(t, w.Node, variant)
				feed(t, w.Node, kubeProxyNFT, "nft", "-f", "-")
				if _, err := w.Client.Ask(t.Context(), "tcp", netip.MustParseAddrPort(cartNodePort)); err != nil {
					t.Fatalf("kube-proxy's rules don't work: %v", err)
				}
				t.Run("", func(t *testing.T) {
					if how == "by the daemon" {
						p := startVmapd(t, w.Node, "--from", filepath.Join(testdata(t), "demo/before"), "--hostname-override", lab.NodeName)
						p.waitFor(t, "msg=ready")
						stopVmapd(t, p)
						return
					}
					clean := startVmapd(t, w.Node, "cleanup")
					if err := clean.cmd.Wait(); err != nil {
						t.Fatalf("cleanup: %v\n%s", err, clean.log)
					}
				})
				if a, err := w.Client.Ask(t.Context(), "tcp", netip.MustParseAddrPort(cartNodePort)); err == nil {
					t.Errorf("the node port of a deleted Service answers: %+v", a)
				}
				if tables := list(t, w.Node); strings.Contains(tables, "kube-proxy") || !strings.Contains(tables, "table ip other") {
					t.Errorf("want no table kube-proxy, and the other one, got:\n%s", tables)
				}
				for program := range leftBehind {
					want := kubeProxys.ReplaceAllString(asKubeProxyLeaves(t, program), "")
					got := feed(t, w.Node, "", program+"-"+variant+"-save")
					if diff := cmp.Diff(tablesOf(want), tablesOf(got)); diff != "" {
						t.Errorf("%s (-want +got):\n%s", program, diff)
					}
				}
			})
		}
	}
}

// On a host without the programs of iptables, the daemon says once that it can't look for chains, and goes on; cleanup
// fails. A node without tables of iptables needs no programs.
func TestChainsOnAHostWithoutIPTables(t *testing.T) {
	bare := func(t *testing.T, ns *lab.Namespace, args ...string) *process {
		t.Helper()
		path := os.Getenv("PATH")
		t.Setenv("PATH", "")
		defer t.Setenv("PATH", path)
		return startVmapd(t, ns, args...)
	}
	const said = "its programs are not installed"
	w := newLab(t)
	args := []string{"--from", filepath.Join(testdata(t), "demo/before"), "--hostname-override", lab.NodeName}
	for _, tables := range []bool{false, true} {
		if tables {
			leaveRules(t, w.Node, "nft")
		}
		p := bare(t, w.Node, args...)
		p.waitFor(t, "msg=ready")
		time.Sleep(leftovers.LookInterval + time.Second)
		stopVmapd(t, p)
		want := 0
		if tables {
			want = 1
		}
		if n := strings.Count(p.log.String(), said); n != want {
			t.Errorf("with tables: %v; want %d warnings, got %d:\n%s", tables, want, n, p.log)
		}
		clean := bare(t, w.Node, "cleanup")
		if err := clean.cmd.Wait(); (err != nil) != tables || strings.Contains(clean.log.String(), "iptables-nft") != tables {
			t.Errorf("with tables: %v; cleanup: %v\n%s", tables, err, clean.log)
		}
	}
}
