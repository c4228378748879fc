package traffic

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/internal/testbed/labtest"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

// The daemon with this backend serves all addresses of the demo, knows its own addresses after it was
// killed, takes away those that no Service has any more, and cleanup removes the rest.
func TestUserspaceDaemon(t *testing.T) {
	w := labtest.New(t)
	if err := w.Node.AddAlias("lo", netip.MustParseAddr("192.0.2.77")); err != nil { // somebody else's
		t.Fatal(err)
	}
	before := serviceAddresses(t, w)
	from := func(folder string) []string {
		return append([]string{"--from", filepath.Join(vmapdtest.Testdata(t), "demo", folder)}, vmapdtest.UserspaceArgs...)
	}
	first := vmapdtest.StartReady(t, w.Node, from("before")...)
	for _, to := range []string{"172.30.0.10:80", "192.168.98.10:80", "192.168.99.10:80", lab.NodeIP4 + ":30080", "[fd00:172:30::10]:80"} {
		for _, network := range []string{"tcp", "udp"} {
			allAnswer(t, w.Client, network, netip.MustParseAddrPort(to), len(w.Pods()))
		}
	}
	allAnswer(t, w.Node, "tcp", netip.MustParseAddrPort("127.0.0.1:30080"), len(w.Pods()))
	first.Kill(t)
	if got := serviceAddresses(t, w); !strings.Contains(got, "172.30.0.10/32") {
		t.Errorf("the addresses do not stay:\n%s", got)
	}
	// Nothing is served, and none of the old addresses is taken for one of the node's.
	second := vmapdtest.StartReady(t, w.Node, append([]string{"--from", t.TempDir()}, vmapdtest.UserspaceArgs...)...)
	if got := serviceAddresses(t, w); strings.Contains(got, "172.30.0.10/32") {
		t.Errorf("no Service is left, and the node has these addresses:\n%s", got)
	}
	vmapdtest.Stop(t, second)

	third := vmapdtest.StartReady(t, w.Node, from("before")...)
	allAnswer(t, w.Client, "tcp", netip.MustParseAddrPort("172.30.0.10:80"), len(w.Pods()))
	vmapdtest.Stop(t, third)
	vmapdtest.Cleanup(t, w.Node)
	if got := serviceAddresses(t, w); got != before {
		t.Errorf("cleanup leaves something: the node had these addresses:\n%s\nnow:\n%s", before, got)
	}
}

// Another backend takes the addresses away once it has programmed the node.
func TestAnotherBackendRemovesTheAddressesOfUserspace(t *testing.T) {
	w := labtest.New(t)
	before := serviceAddresses(t, w)
	from := []string{"--from", vmapdtest.Demo(t), "--hostname-override", lab.NodeName}
	first := vmapdtest.StartReady(t, w.Node, append(from, "--backend=userspace")...)
	vmapdtest.Stop(t, first)
	vmapdtest.StartReady(t, w.Node, append(from, "--backend=nftables")...)
	vmapdtest.Eventually(t, func() string {
		if got := serviceAddresses(t, w); got != before {
			return "the addresses are still there:\n" + got
		}
		return ""
	})
	allAnswer(t, w.Client, "tcp", netip.MustParseAddrPort("172.30.0.10:80"), len(w.Pods()))
}

// An ordinary user needs no privilege for ports from 1024 on at addresses that the node has.
func TestUserspaceDaemonOfAnOrdinaryUser(t *testing.T) {
	w := labtest.New(t)
	args := append([]string{vmapdtest.UnprivilegedName, "vmapd", "--from", vmapdtest.Demo(t)}, vmapdtest.UserspaceArgs...)
	p := vmapdtest.Launch(t, w.Node, "/proc/self/exe", args...)
	p.WaitFor(t, "msg=ready")
	for _, network := range []string{"tcp", "udp"} {
		allAnswer(t, w.Client, network, netip.MustParseAddrPort(lab.NodeIP4+":30080"), len(w.Pods()))
		allAnswer(t, w.Client, network, netip.MustParseAddrPort("["+lab.NodeIP6+"]:30080"), len(w.Pods()))
		allAnswer(t, w.Node, network, netip.MustParseAddrPort("127.0.0.1:30080"), len(w.Pods()))
	}
	p.WaitFor(t, "without CAP_NET_ADMIN")
	p.WaitFor(t, "addresses that the node does not have are not served")
	if n := strings.Count(p.Log.String(), "not served"); n != 1 {
		t.Errorf("want one line about addresses that are not served, got %d:\n%s", n, p.Log)
	}
	vmapdtest.Stop(t, p)
}

// maxTries is the number of connections after which three pods should have answered.
const maxTries = 100

// allAnswer fails unless so many pods answer within some connections.
func allAnswer(t *testing.T, from *lab.Namespace, network string, to netip.AddrPort, pods int) {
	t.Helper()
	answered := map[string]bool{}
	for range maxTries {
		a, err := from.Ask(t.Context(), network, to)
		if err != nil {
			t.Fatalf("%s %v: %v", network, to, err)
		}
		if answered[a.Pod] = true; len(answered) == pods {
			return
		}
	}
	t.Errorf("%s %v: only %v answered", network, to, answered)
}

// serviceAddresses lists the addresses of the node's loopback interface, and the device of the backend.
func serviceAddresses(t *testing.T, w *lab.World) string {
	t.Helper()
	out, err := w.Node.Command(t.Context(), "ip", "-brief", "address", "show", "lo").CombinedOutput()
	if err != nil {
		t.Fatalf("ip: %v\n%s", err, out)
	}
	device, _ := w.Node.Command(t.Context(), "ip", "-brief", "address", "show", "vmapd-services").CombinedOutput()
	return fmt.Sprintf("%s%s", out, device)
}
