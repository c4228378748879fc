package main

import (
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

// stickyDemo returns a folder with the manifests of the demo, in which the Service web has session affinity.
func stickyDemo(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	for _, name := range []string{"services.yaml", "endpoints.yaml"} {
		text, err := os.ReadFile(filepath.Join(testdata(t), "demo/before", name))
		if err != nil {
			t.Fatal(err)
		}
		sticky := strings.Replace(string(text), "  type: LoadBalancer\n", "  type: LoadBalancer\n  sessionAffinity: ClientIP\n", 1)
		if err := os.WriteFile(filepath.Join(folder, name), []byte(sticky), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// The daemon tells which endpoint the kernel remembers for a client, and until when.
func TestTheDaemonTellsTheRememberedEndpoint(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{"nftables", "iptables"} {
		for _, vip := range []string{"192.168.98.10:80", "[fd00:192:168:98::10]:80"} {
			to := netip.MustParseAddrPort(vip)
			t.Run(backend+"/"+to.Addr().String(), func(t *testing.T) {
				w := newLab(t)
				folder, err := os.MkdirTemp("", "vmapd") //nolint:usetesting // the test's folder has too long a path for a socket
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = os.RemoveAll(folder) })
				socket := filepath.Join(folder, "socket")
				startVmapd(t, w.Node, "--backend="+backend, "--from", stickyDemo(t), "--hostname-override", lab.NodeName, "--socket", socket).
					waitFor(t, "msg=ready")
				client := lab.ClientIP4
				if to.Addr().Is6() {
					client = lab.ClientIP6
				}
				explain := func() string { return asks(t, socket, "explain", "--from", client, vip) }
				wantLine(t, explain(), `\s*Session affinity: the kernel remembers no endpoint for this client; its next connection goes to any of them\.`)
				for range 3 {
					a, err := w.Client.Ask(t.Context(), "tcp", to)
					if err != nil {
						t.Fatal(err)
					}
					endpoint := map[string]string{"pod-1": "10.0.0.2:8080", "pod-2": "10.0.0.3:8080", "pod-3": "10.0.0.4:8080"}[a.Pod]
					if to.Addr().Is6() {
						endpoint = strings.Replace(endpoint, "10.0.0.", "[fd00:10::", 1)
						endpoint = strings.Replace(endpoint, ":8080", "]:8080", 1)
					}
					wantLine(t, explain(), `\s*Session affinity: the kernel remembers `+regexp.QuoteMeta(endpoint)+` for this client until .* UTC, for another (3h0m0s|2h59m\d\ds)\.`)
				}
			})
		}
	}
}
