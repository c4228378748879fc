package main

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/socket"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/status"
)

// asks runs a subcommand that asks the daemon at a socket.
func asks(t *testing.T, socket string, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), append(args, "--socket", socket), nil, &stdout, &stderr); code != 0 {
		t.Fatalf("vmapd %s: exit code %d\n%s", strings.Join(args, " "), code, &stderr)
	}
	return stdout.String()
}

// overview is what status shows.
func overview(t *testing.T, path string) (all status.Overview) {
	t.Helper()
	if err := (socket.Client{Path: path}).Get(t.Context(), "/v1/status", nil, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

func wantLine(t *testing.T, text string, words ...string) {
	t.Helper()
	pattern := `(?m)^` + strings.Join(words, `\s+`) + `\s*$`
	if !regexp.MustCompile(pattern).MatchString(text) {
		t.Errorf("no line %q:\n%s", pattern, text)
	}
}

// The commands show the running daemon what real connections meet, with each backend.
func TestTheRunningDaemonTells(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{"nftables", "iptables", "ipvs", "userspace"} {
		t.Run(backend, func(t *testing.T) {
			if backend == "ipvs" {
				skipWithoutIPVS(t)
			}
			w := newLab(t)
			socket := filepath.Join(t.TempDir(), "vmapd.sock")
			startVmapd(t, w.Node, "--backend="+backend, "--from", filepath.Join(testdata(t), "demo/before"), "--hostname-override", lab.NodeName,
				"--socket", socket, "--service-counters").waitFor(t, "msg=ready")

			text := asks(t, socket, "status")
			wantLine(t, text, "Node", lab.NodeName)
			wantLine(t, text, "Backend", backend+".*")
			wantLine(t, text, "Ready", "yes")
			text = asks(t, socket, "services", "-n", "default", "-o", "wide")
			wantLine(t, text, "default", "web", "80/tcp", `172\.30\.0\.10`, "3", ".*forwarded")
			wantLine(t, text, "default", "empty", "80/tcp", `172\.30\.0\.11`, "0", ".*refused: no endpoint is ready")
			wantLine(t, asks(t, socket, "endpoints", "web"), "default", "web", "80/tcp", `10\.0\.0\.3:8080`, `33\.3%`, ".*serving")

			const connections = 5
			var pods []string
			for range connections {
				c, err := w.Client.Dial(t.Context(), "tcp", netip.MustParseAddrPort("172.30.0.10:80"))
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = c.Close() }()
				a, err := c.Ask(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				pods = append(pods, a.Pod)
			}
			var got status.Connections
			if err := json.Unmarshal([]byte(asks(t, socket, "connections", "default/web", "-o", "json")), &got); err != nil {
				t.Fatal(err)
			}
			for _, c := range got.Items {
				if c.Protocol != "tcp" || c.Family != "IPv4" {
					continue
				}
				if backend == "userspace" {
					if c.Tracked != nil || c.New == nil || *c.New != connections {
						t.Errorf("want %d new connections, and none that are tracked: %+v", connections, c)
					}
					continue
				}
				if c.Tracked == nil || *c.Tracked != connections {
					t.Errorf("tracked: %v, want %d, to %v: %+v", c.Tracked, connections, pods, c)
				}
				if (c.New != nil) != (backend == "nftables") || c.New != nil && *c.New != connections {
					t.Errorf("new: %v, want %d with nftables, none with others", c.New, connections)
				}
			}
			tracked := "5"
			if backend == "userspace" {
				tracked = "-"
			}
			wantLine(t, asks(t, socket, "connections"), "default", "web", "80/tcp", "IPv4", "[-0-9]+", tracked)
		})
	}
}

// A daemon without the socket goes on, and the commands say that none answers.
func TestWithoutTheSocketTheDaemonGoesOn(t *testing.T) {
	w := newLab(t)
	taken := filepath.Join(t.TempDir(), "a-file")
	replaceFile(t, taken, "not a socket")
	p := startVmapd(t, w.Node, "--from", filepath.Join(testdata(t), "demo/before"), "--hostname-override", lab.NodeName, "--socket", taken)
	p.waitFor(t, "msg=ready")
	p.waitFor(t, "cannot open the socket for vmapd's subcommands")
	if _, err := w.Client.Ask(t.Context(), "tcp", netip.MustParseAddrPort("172.30.0.10:80")); err != nil {
		t.Error(err)
	}
	var stdout, stderr bytes.Buffer
	nowhere := filepath.Join(t.TempDir(), "nowhere")
	code := run(t.Context(), []string{"services", "--socket", nowhere}, nil, &stdout, &stderr)
	if want := "vmapd: no daemon answers: there is no socket " + nowhere; code != 1 || !strings.HasPrefix(stderr.String(), want) {
		t.Errorf("exit code %d, %q; want 1, %q", code, &stderr, want)
	}
}
