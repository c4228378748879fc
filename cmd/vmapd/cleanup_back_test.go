package main

import (
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

// kubeProxyLike forwards the demo's cluster IP to pod-2 alone, with the chains or the table of
// a mode of kube-proxy.
func kubeProxyLike(t *testing.T, node *lab.Namespace, mode string) {
	t.Helper()
	const rules = `*nat
:KUBE-SERVICES - [0:0]
-A PREROUTING -j KUBE-SERVICES
-A KUBE-SERVICES -d 172.30.0.10/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.0.0.3:8080
COMMIT
`
	const table = `table ip kube-proxy {
	chain services {
		ip daddr 172.30.0.10 tcp dport 80 dnat to 10.0.0.3:8080
	}
	chain nat-prerouting {
		type nat hook prerouting priority dstnat;
		jump services
	}
}
`
	if mode == "nftables" {
		feed(t, node, table, "nft", "-f", "-")
	} else {
		feed(t, node, rules, mode+"-restore", "--noflush")
	}
}

// To vmapd and back, a connection that is under way goes on, a client that connects anew is
// always answered, and in the end by kube-proxy's endpoint.
func TestConnectionsGoOnToVmapdAndBack(t *testing.T) {
	all, one := []string{"pod-1", "pod-2", "pod-3"}, []string{"pod-2"}
	for mode, before := range map[string][]string{
		// Who answers before the clean-up. The chain that was hooked in last comes first in
		// the kernel, and iptables' own are there all the time: vmapd's rules go on.
		"iptables-legacy": all, "iptables-nft": all, "nftables": one,
	} {
		t.Run(mode, func(t *testing.T) {
			w := newLab(t)
			vip := netip.MustParseAddrPort("172.30.0.10:80")
			kubeProxyLike(t, w.Node, mode)
			long, err := w.Client.Dial(t.Context(), "tcp", vip)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = long.Close() }()
			goesOn := func(when string) {
				t.Helper()
				if a, err := long.Ask(t.Context()); err != nil || a.Pod != "pod-2" {
					t.Errorf("%s, the connection of before: %+v, %v", when, a, err)
				}
			}
			answers := func() []string {
				pods := map[string]bool{}
				for range 40 {
					a, err := w.Client.Ask(t.Context(), "tcp", vip)
					if err != nil {
						t.Fatal(err)
					}
					pods[a.Pod] = true
				}
				return slices.Sorted(maps.Keys(pods))
			}
			goesOn("with kube-proxy")
			p := startVmapd(t, w.Node, "--from", filepath.Join(testdata(t), "demo/before"), "--hostname-override", lab.NodeName)
			p.waitFor(t, "msg=ready")
			goesOn("with vmapd")
			if diff := cmp.Diff(all, answers()); diff != "" {
				t.Errorf("with vmapd, who answers (-want +got):\n%s", diff)
			}
			stopVmapd(t, p)
			kubeProxyLike(t, w.Node, mode)
			goesOn("with kube-proxy again")
			if diff := cmp.Diff(before, answers()); diff != "" {
				t.Errorf("with both, who answers (-want +got):\n%s", diff)
			}
			clean := startVmapd(t, w.Node, "cleanup", "--keep-kube-proxy")
			if err := clean.cmd.Wait(); err != nil {
				t.Fatalf("cleanup: %v\n%s", err, clean.log)
			}
			goesOn("after the clean-up")
			if diff := cmp.Diff(one, answers()); diff != "" {
				t.Errorf("after the clean-up, who answers (-want +got):\n%s", diff)
			}
		})
	}
}
