package diagnosis

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

// rangedVIP and rangedVIP6 are cluster IPs whose only endpoint is pod-1.
const rangedVIP, rangedVIP6 = "172.30.0.20:80", "[fd00:172:30::20]:80"

// bridgePods makes the first two pods neighbours on a bridge of the node, as the plugin bridge does: what one of
// them sends to the other passes netfilter only if the node's settings say so.
func bridgePods(t *testing.T, w *lab.World, callIPTables string) {
	t.Helper()
	vmapdtest.Feed(t, w.Node, "", "ip", "link", "add", "cni0", "up", "type", "bridge")
	for _, s := range []string{"net/bridge/bridge-nf-call-iptables", "net/bridge/bridge-nf-call-ip6tables"} {
		if err := w.Node.Sysctl(s, callIPTables); err != nil {
			t.Skipf("this kernel has no br_netfilter: %v", err)
		}
	}
	if err := w.Node.Sysctl("net/ipv4/conf/cni0/send_redirects", "1"); err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{"10.0.0.1/24", "fd00:10::1/64", "fe80::1/64"} {
		vmapdtest.Feed(t, w.Node, "", "ip", "address", "add", address, "dev", "cni0")
	}
	for _, pod := range w.Pods()[:2] {
		vmapdtest.Feed(t, w.Node, "", "ip", "link", "set", pod.Link, "master", "cni0")
		for a, network := range map[netip.Addr]string{pod.IP4: "10.0.0.0/24", pod.IP6: "fd00:10::/64"} {
			vmapdtest.Feed(t, w.Node, "", "ip", "route", "del", a.String(), "dev", pod.Link)
			vmapdtest.Feed(t, pod.Namespace, "", "ip", "route", "add", network, "dev", "eth0")
		}
	}
}

// An ICMP redirect of the node's is neither an error nor the answer.
func TestTraceTakesARedirectForWhatItIs(t *testing.T) {
	t.Parallel()
	w, known := traceWorld(t, "--masquerade-all")
	bridgePods(t, w, "0")
	for dest, endpoint := range map[string]string{rangedVIP: "10.0.0.2", rangedVIP6: "[fd00:10::2]"} {
		for range 2 { // the second one over IPv6 has the endpoint's hardware address, too
			time.Sleep(1100 * time.Millisecond) // the kernel limits their rate
			tellsOf(t, w, w.Pods()[1].Namespace, known, "tcp", dest,
				"=> forwarded to "+endpoint+":8080 by cni0, which accepted it.\n")
		}
	}
}

// The answer of an endpoint on the client's bridge is not seen where the bridge's packets do not pass netfilter.
func TestTraceSaysThatTheAnswerTakesTheBridge(t *testing.T) {
	t.Parallel()
	w, known := traceWorld(t)
	bridgePods(t, w, "0")
	past := func(dest, endpoint, name string) {
		t.Helper()
		tellsOf(t, w, w.Pods()[1].Namespace, known, "tcp", dest,
			fmt.Sprintf("=> forwarded to %s by cni0, which did not answer within 500ms: an answer takes that bridge past "+
				"netfilter (net.bridge.%s is 0): it comes from %[1]s in place of %[3]s, and the client does not know that address.\n",
				endpoint, name, dest))
	}
	past(rangedVIP, "10.0.0.2:8080", "bridge-nf-call-iptables")
	past(rangedVIP6, "[fd00:10::2]:8080", "bridge-nf-call-ip6tables")
	for _, s := range []string{"net/bridge/bridge-nf-call-iptables", "net/bridge/bridge-nf-call-ip6tables"} {
		if err := w.Node.Sysctl(s, "1"); err != nil {
			t.Fatal(err)
		}
	}
	tellsOf(t, w, w.Pods()[0].Namespace, known, "tcp", rangedVIP, "=> lost after prerouting", "hairpin mode (bridge -d link)?")
	for _, dest := range []string{rangedVIP, rangedVIP6} {
		tellsOf(t, w, w.Pods()[1].Namespace, known, "tcp", dest, ":8080 by ", ", which accepted it.\n")
		tellsOf(t, w, w.Node, known, "tcp", dest, ":8080 by cni0, which accepted it.\n")
	}
}
