package main

import (
	"net/netip"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

// Node ports on loopback are refused, until the daemon is told to serve them: then all
// endpoints answer there, over TCP and UDP, in both families, and nobody else's way to
// them changes.
func TestNodePortsOnLocalhost(t *testing.T) {
	w := newLab(t)
	args := []string{"--from", filepath.Join(testdata(t), "demo/before"), "--hostname-override", lab.NodeName}
	first := startVmapd(t, w.Node, args...)
	first.waitFor(t, "msg=ready")
	loopback := []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:30080"), netip.MustParseAddrPort("[::1]:30080")}
	for _, to := range loopback {
		if a, err := w.Node.Ask(t.Context(), "tcp", to); lab.FailureOf(err) != lab.Refused {
			t.Errorf("%v without localhost: got answer %+v, error %v, want it refused", to, a, err)
		}
	}
	stopVmapd(t, first)

	second := startVmapd(t, w.Node, append(args, "--nodeport-addresses", "primary,localhost")...)
	second.waitFor(t, "msg=ready")
	for _, to := range append(loopback, netip.MustParseAddrPort(lab.NodeIP4+":30080")) {
		for _, network := range []string{"tcp", "udp"} {
			pods := map[string]int{}
			for range 60 {
				a, err := w.Node.Ask(t.Context(), network, to)
				if err != nil {
					t.Fatalf("%s %v: %v\n%s", network, to, err, second.log)
				}
				pods[a.Pod]++
			}
			if len(pods) != len(w.Pods()) {
				t.Errorf("%s %v: %v answered, want all of %d", network, to, pods, len(w.Pods()))
			}
		}
	}
	// A connection that comes in from outside can't reach loopback.
	if a, err := w.Client.Ask(t.Context(), "tcp", netip.MustParseAddrPort(lab.NodeIP4+":30080")); err != nil {
		t.Errorf("the client at the node port: %+v, %v", a, err)
	}
	stopVmapd(t, second)
	if a, err := w.Node.Ask(t.Context(), "tcp", loopback[0]); lab.FailureOf(err) != lab.Refused {
		t.Errorf("after the daemon's end: got answer %+v, error %v, want it refused", a, err)
	}
}

// A port that somebody else has is named, the others are served, and the rules are
// programmed all the same.
func TestATakenPortOnLocalhost(t *testing.T) {
	w := newLab(t)
	server, err := w.Node.Serve("somebody", 30080)
	if err != nil {
		t.Fatal(err)
	}
	p := startVmapd(t, w.Node, "--from", filepath.Join(testdata(t), "demo/before"), "--hostname-override", lab.NodeName,
		"--nodeport-addresses", "primary,localhost")
	p.waitFor(t, "address already in use")
	if !strings.Contains(p.log.String(), "default/web:tcp") {
		t.Errorf("the log does not name the service port:\n%s", p.log)
	}
	if a, err := w.Client.Ask(t.Context(), "tcp", netip.MustParseAddrPort("172.30.0.10:80")); err != nil {
		t.Errorf("a cluster IP meanwhile: %+v, %v", a, err)
	}
	server.Close()
	p.waitFor(t, "msg=ready")
	a, err := w.Node.Ask(t.Context(), "tcp", netip.MustParseAddrPort("127.0.0.1:30080"))
	if err != nil || a.Pod == "somebody" {
		t.Errorf("once the port is free: %+v, %v", a, err)
	}
	stopVmapd(t, p)
}

// stopVmapd ends a daemon as kubelet does.
func stopVmapd(t *testing.T, p *process) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("vmapd did not end well: %v\n%s", err, p.log)
	}
}
