package takeover

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/internal/testbed/labtest"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/model"
)

// kubeProxyLike forwards the demo's cluster IPs of some families to pod-2 alone, with the chains or
// the tables of a mode of kube-proxy.
func kubeProxyLike(t *testing.T, node *lab.Namespace, mode string, families ...model.Family) {
	t.Helper()
	const rules = `*nat
:KUBE-SERVICES - [0:0]
:KUBE-POSTROUTING - [0:0]
-A PREROUTING -j KUBE-SERVICES
-A POSTROUTING -j KUBE-POSTROUTING
-A KUBE-SERVICES -d VIP -p tcp -m tcp --dport 80 -j DNAT --to-destination POD
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
COMMIT
`
	const table = `table FAMILY kube-proxy {
	chain services {
		FAMILY daddr VIP tcp dport 80 dnat to POD
	}
	chain nat-prerouting {
		type nat hook prerouting priority dstnat;
		jump services
	}
}
`
	for _, f := range families {
		fill, program := strings.NewReplacer("FAMILY", "ip", "VIP", "172.30.0.10", "POD", "10.0.0.3:8080"), "iptables"
		if f == model.IPv6 {
			fill, program = strings.NewReplacer("FAMILY", "ip6", "VIP", "fd00:172:30::10", "POD", "[fd00:10::3]:8080"),
				"ip6tables"
		}
		if mode == "nftables" {
			vmapdtest.Feed(t, node, fill.Replace(table), "nft", "-f", "-")
		} else {
			vmapdtest.Feed(t, node, fill.Replace(rules), strings.Replace(mode, "iptables", program, 1)+"-restore", "--noflush")
		}
	}
}

// To vmapd and back, connections that are under way go on, a client that connects anew is always answered, and in the
// end by kube-proxy's endpoint. A pod of kube-proxy runs for a while before it has written rules, those of IPv6 last.
// The clean-up removes nothing until then: without rules, new connections fail, and without any rule that uses
// connection tracking, the kernel no longer translates those that are under way.
func TestConnectionsGoOnToVmapdAndBack(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"iptables-legacy", "iptables-nft", "nftables"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			w := labtest.New(t)
			vips := []netip.AddrPort{vmapdtest.WebVIP, vmapdtest.WebVIP6}
			kubeProxyLike(t, w.Node, mode, model.Families[:]...)
			var long []*lab.Conn
			for _, vip := range vips {
				c, err := w.Client.Dial(t.Context(), "tcp", vip)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = c.Close() }()
				long = append(long, c)
			}
			// served checks that the connections of before go on, and which pods answer new ones.
			served := func(when string, want ...string) {
				t.Helper()
				for i, vip := range vips {
					if a, err := long[i].Ask(t.Context()); err != nil || a.Pod != "pod-2" {
						t.Errorf("%s, the connection of before to %v: %+v, %v", when, vip, a, err)
					}
					pods := map[string]bool{}
					for range 40 {
						a, err := w.Client.Ask(t.Context(), "tcp", vip)
						if err != nil {
							t.Fatalf("%s, a new connection to %v: %v", when, vip, err)
						}
						pods[a.Pod] = true
					}
					if diff := cmp.Diff(want, slices.Sorted(maps.Keys(pods))); diff != "" {
						t.Errorf("%s, who answers at %v (-want +got):\n%s", when, vip, diff)
					}
				}
			}
			all := []string{"pod-1", "pod-2", "pod-3"}
			served("with kube-proxy", "pod-2")
			p := vmapdtest.StartDemo(t, w.Node)
			served("with vmapd", all...)
			vmapdtest.Stop(t, p)
			early := func(when string) {
				t.Helper()
				clean := vmapdtest.Start(t, w.Node, "cleanup", "--keep-kube-proxy")
				if err := clean.Cmd.Wait(); err == nil || !strings.Contains(clean.Log.String(), "kube-proxy has no rules") {
					t.Errorf("%s, cleanup: %v; want an error about kube-proxy's rules\n%s", when, err, clean.Log)
				}
				served(when, all...)
			}
			early("without kube-proxy")
			if mode != "nftables" {
				// The chains are there before their rules.
				const begun = "*nat\n:KUBE-PROXY-CANARY - [0:0]\n:KUBE-SERVICES - [0:0]\n:KUBE-POSTROUTING - [0:0]\nCOMMIT\n"
				for _, program := range []string{"iptables", "ip6tables"} {
					vmapdtest.Feed(t, w.Node, begun, strings.Replace(mode, "iptables", program, 1)+"-restore", "--noflush")
				}
				early("with kube-proxy's chains")
			}
			kubeProxyLike(t, w.Node, mode, model.IPv4)
			early("with kube-proxy's rules of IPv4")
			kubeProxyLike(t, w.Node, mode, model.IPv6)
			served("with both", all...) // vmapd's rules are before kube-proxy's
			vmapdtest.Cleanup(t, w.Node, "--keep-kube-proxy")
			if has := leftByBackends(t, w); len(has) > 0 {
				t.Errorf("still there: %v", has)
			}
			served("after the clean-up", "pod-2")
		})
	}
}

// Where kube-proxy has no rules of IPv6, because the node has no IPv6 or no ip6tables, those of IPv4
// suffice.
func TestCleanupWhereKubeProxyHasOneFamily(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"iptables-nft", "nftables"} {
		w := labtest.New(t)
		vmapdtest.Stop(t, vmapdtest.StartDemo(t, w.Node))
		kubeProxyLike(t, w.Node, mode, model.IPv4)
		if mode == "nftables" {
			vmapdtest.Feed(t, w.Node, "", "sysctl", "-w", "net.ipv6.conf.all.disable_ipv6=1")
		}
		vmapdtest.Cleanup(t, w.Node, "--keep-kube-proxy")
		if has := leftByBackends(t, w); len(has) > 0 {
			t.Errorf("%s: still there: %v", mode, has)
		}
	}
}
