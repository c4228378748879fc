package main

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

var userspaceArgs = []string{"--hostname-override", lab.NodeName, "--backend=userspace", "--nodeport-addresses", "primary,localhost"}

// The daemon with this backend serves all addresses of the demo, knows its own addresses after it was
// killed, takes away those that no Service has any more, and cleanup removes the rest.
func TestUserspaceDaemon(t *testing.T) {
	w := newLab(t)
	if err := w.Node.AddAlias("lo", netip.MustParseAddr("192.0.2.77")); err != nil { // somebody else's
		t.Fatal(err)
	}
	before := serviceAddresses(t, w)
	from := func(folder string) []string {
		return append([]string{"--from", filepath.Join(testdata(t), "demo", folder)}, userspaceArgs...)
	}
	first := startVmapd(t, w.Node, from("before")...)
	first.waitFor(t, "msg=ready")
	for _, to := range []string{"172.30.0.10:80", "192.168.98.10:80", "192.168.99.10:80", lab.NodeIP4 + ":30080", "[fd00:172:30::10]:80"} {
		for _, network := range []string{"tcp", "udp"} {
			allAnswer(t, w.Client, network, netip.MustParseAddrPort(to), len(w.Pods()))
		}
	}
	allAnswer(t, w.Node, "tcp", netip.MustParseAddrPort("127.0.0.1:30080"), len(w.Pods()))
	if err := first.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.cmd.Wait() // killed, of course
	if got := serviceAddresses(t, w); !strings.Contains(got, "172.30.0.10/32") {
		t.Errorf("the addresses do not stay:\n%s", got)
	}
	// Nothing is served, and none of the old addresses is taken for one of the node's.
	second := startVmapd(t, w.Node, append([]string{"--from", t.TempDir()}, userspaceArgs...)...)
	second.waitFor(t, "msg=ready")
	if got := serviceAddresses(t, w); strings.Contains(got, "172.30.0.10/32") {
		t.Errorf("no Service is left, and the node has these addresses:\n%s", got)
	}
	stopVmapd(t, second)

	third := startVmapd(t, w.Node, from("before")...)
	third.waitFor(t, "msg=ready")
	allAnswer(t, w.Client, "tcp", netip.MustParseAddrPort("172.30.0.10:80"), len(w.Pods()))
	stopVmapd(t, third)
	clean := startVmapd(t, w.Node, "cleanup")
	if err := clean.cmd.Wait(); err != nil {
		t.Errorf("cleanup: %v\n%s", err, clean.log)
	}
	if got := serviceAddresses(t, w); got != before {
		t.Errorf("cleanup leaves something: the node had these addresses:\n%s\nnow:\n%s", before, got)
	}
}

// Another backend takes the addresses away once it has programmed the node.
func TestAnotherBackendRemovesTheAddressesOfUserspace(t *testing.T) {
	w := newLab(t)
	before := serviceAddresses(t, w)
	from := []string{"--from", filepath.Join(testdata(t), "demo/before"), "--hostname-override", lab.NodeName}
	first := startVmapd(t, w.Node, append(from, "--backend=userspace")...)
	first.waitFor(t, "msg=ready")
	stopVmapd(t, first)
	second := startVmapd(t, w.Node, append(from, "--backend=nftables")...)
	second.waitFor(t, "msg=ready")
	eventually(t, func() string {
		if got := serviceAddresses(t, w); got != before {
			return "the addresses are still there:\n" + got
		}
		return ""
	})
	allAnswer(t, w.Client, "tcp", netip.MustParseAddrPort("172.30.0.10:80"), len(w.Pods()))
}

// An ordinary user needs no privilege for ports from 1024 on at addresses that the node has.
func TestUserspaceDaemonOfAnOrdinaryUser(t *testing.T) {
	w := newLab(t)
	p := &process{cmd: w.Node.Command(t.Context(), "/proc/self/exe"), log: &syncBuffer{}}
	p.cmd.Args = append([]string{unprivilegedName, "vmapd", "--from", filepath.Join(testdata(t), "demo/before")}, userspaceArgs...)
	p.cmd.Stderr, p.cmd.Stdout = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.waitFor(t, "msg=ready")
	for _, network := range []string{"tcp", "udp"} {
		allAnswer(t, w.Client, network, netip.MustParseAddrPort(lab.NodeIP4+":30080"), len(w.Pods()))
		allAnswer(t, w.Client, network, netip.MustParseAddrPort("["+lab.NodeIP6+"]:30080"), len(w.Pods()))
		allAnswer(t, w.Node, network, netip.MustParseAddrPort("127.0.0.1:30080"), len(w.Pods()))
	}
	p.waitFor(t, "without CAP_NET_ADMIN")
	p.waitFor(t, "addresses that the node does not have are not served")
	if n := strings.Count(p.log.String(), "not served"); n != 1 {
		t.Errorf("want one line about addresses that are not served, got %d:\n%s", n, p.log)
	}
	stopVmapd(t, p)
}

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
