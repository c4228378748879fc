package cli

import (
	"bytes"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/labtest"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/cli"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

// The daemon explains its own decision, and whether the kernel has the same.
func TestTheDaemonExplains(t *testing.T) {
	for _, backend := range []string{"nftables", "iptables", "ipvs"} {
		t.Run(backend, func(t *testing.T) {
			if backend == "ipvs" {
				vmapdtest.NeedIPVS(t)
			}
			w := labtest.New(t)
			socket := filepath.Join(t.TempDir(), "vmapd.sock")
			vmapdtest.StartDemo(t, w.Node, "--backend="+backend, "--socket", socket)
			for question, expect := range map[string]string{
				"--from 203.0.113.7 192.168.98.10:80": "forwarded", "--from 203.0.113.7 svc/empty": "rejected",
				"--from node svc/empty": "rejected", "--from 203.0.113.7 203.0.113.9:80": "not-a-service",
			} {
				text := askDaemon(t, socket, append(strings.Fields("explain "+question), "--expect", expect)...)
				wantLine(t, text, `\d+\. Source: the running daemon; the kernel rules agree \(backend `+backend+`\)\.`)
				if expect == "forwarded" {
					wantLine(t, text, `=> forwarded to 10\.0\.0\.2:8080, 10\.0\.0\.3:8080 or 10\.0\.0\.4:8080`)
				}
			}
			// The jump that somebody puts before ours concerns all connections.
			if backend == "iptables" {
				vmapdtest.Feed(t, w.Node, "", "iptables", strings.Fields("-t nat -I PREROUTING -j ACCEPT")...)
				text := askDaemon(t, socket, "explain", "--from", "203.0.113.7", "192.168.98.10:80")
				wantLine(t, text, `=> forwarded to .*; but the kernel differs from what the daemon wants`)
			}
			var stdout, stderr bytes.Buffer
			code := cli.Run(t.Context(), []string{"explain", "--socket", socket, "--from", "node", "svc/wbe:80"}, nil, &stdout,
				&stderr)
			if want := "vmapd: service \"wbe\" not found\n"; code != 1 || stderr.String() != want {
				t.Errorf("exit code %d, %q; want 1, %q", code, &stderr, want)
			}
		})
	}
}

// With the backend in user space, the endpoint of a pod's connection sees the node's address; the kernel's
// part of it is the listener.
func TestTheDaemonExplainsListeners(t *testing.T) {
	w := labtest.New(t)
	socket := filepath.Join(t.TempDir(), "vmapd.sock")
	vmapdtest.Start(t, w.Node, append([]string{"--from", vmapdtest.Demo(t), "--socket", socket, "--fast-path=auto"},
		vmapdtest.UserspaceArgs...)...).
		WaitFor(t, "msg=ready")
	wantLine(t, askDaemon(t, socket, "status"), " *warn",
		"fast-path: not possible: the backend userspace has none")
	const source = `\s*[0-9]+\. The source address becomes this node's: the listener opens a connection of its own\.`
	for _, to := range []string{"svc/web:80", "192.168.98.10:80", "192.168.0.2:30080"} {
		text := askDaemon(t, socket, "explain", "--from", "10.0.0.3", to, "--expect", "forwarded")
		wantLine(t, text, source)
		wantLine(t, text, `\d+\. Source: the running daemon; the kernel rules agree \(backend userspace\)\.`)
	}
	if a, err := w.Pods()[1].Ask(t.Context(), "tcp", netip.MustParseAddrPort("172.30.0.10:80")); err != nil ||
		a.Source.Addr().String() == "10.0.0.3" {
		t.Errorf("the endpoint sees %v, %v", a.Source, err)
	}
	own := filepath.Join(t.TempDir(), "vmapd.yaml")
	vmapdtest.ReplaceFile(t, own, "apiVersion: vmapd.io/v1alpha1\nkind: VmapdConfiguration\nbackend: userspace\n")
	var offline, stderr bytes.Buffer
	if code := cli.Run(t.Context(), []string{
		"explain", "-f", vmapdtest.Demo(t), "--vmapd-config", own, "--from", "10.0.0.3", "web:80",
	}, nil, &offline, &stderr); code != 0 {
		t.Fatalf("exit code %d: %s", code, &stderr)
	}
	wantLine(t, offline.String(), source)
}

// A daemon in another network namespace, of a node that the objects do not have.
func TestADaemonElsewhereIsNamed(t *testing.T) {
	t.Parallel()
	w := labtest.New(t)
	socket := filepath.Join(t.TempDir(), "vmapd.sock")
	p := vmapdtest.Start(t, w.Node, "--from", vmapdtest.Demo(t), "--socket", socket, "--hostname-override", "elsewhere")
	p.WaitFor(t, "msg=ready")
	network := "the daemon at " + socket + " runs in another network namespace; run this with nsenter -t " + p.Pid() +
		" -n"
	for command, want := range map[string]string{
		"explain --from node svc/web": "the daemon's node \"elsewhere\" not found; the nodes: node-1 (start it with " +
			"--hostname-override NODE)",
		"doctor": network, "trace svc/web": network,
	} {
		var stdout, stderr bytes.Buffer
		code := cli.Run(t.Context(), append(strings.Fields(command), "--socket", socket), nil, &stdout, &stderr)
		if code != 1 || stderr.String() != "vmapd: "+want+"\n" {
			t.Errorf("%s: exit code %d, %q; want 1, %q", command, code, &stderr, want)
		}
	}
}
