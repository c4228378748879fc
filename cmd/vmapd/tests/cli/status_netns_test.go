package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/internal/testbed/labtest"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/cli"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/status"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

// askDaemon runs a subcommand that asks the daemon at a socket.
func askDaemon(t *testing.T, socket string, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if code := cli.Run(t.Context(), append(args, "--socket", socket), nil, &stdout, &stderr); code != 0 {
		t.Fatalf("vmapd %s: exit code %d\n%s", strings.Join(args, " "), code, &stderr)
	}
	return stdout.String()
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
				vmapdtest.NeedIPVS(t)
			}
			w := labtest.New(t)
			socket := filepath.Join(t.TempDir(), "vmapd.sock")
			args := []string{"--backend=" + backend, "--socket", socket, "--service-counters"}
			if backend == "nftables" {
				args = append(args, "--fast-path=auto")
			}
			vmapdtest.StartDemo(t, w.Node, args...)

			text := askDaemon(t, socket, "status")
			wantLine(t, text, "Node", lab.NodeName)
			wantLine(t, text, "Backend", backend+".*")
			wantLine(t, text, "Ready", "yes")
			wantLine(t, text, "Doctor", "[0-9]+ failures?, [0-9]+ warnings?, [0-9]+ ok .*")
			text = askDaemon(t, socket, "services", "-A", "-o", "wide")
			wantLine(t, text, "default", "web", "80/tcp", `172\.30\.0\.10`, "3", ".*forwarded")
			wantLine(t, text, "default", "empty", "80/tcp", `172\.30\.0\.11`, "0", ".*rejected: no endpoint is ready")
			wantLine(t, askDaemon(t, socket, "services", "-n", "nowhere"), `no Services in namespace "nowhere"; .*`)

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
			var got status.One
			if err := json.Unmarshal([]byte(askDaemon(t, socket, "status", "svc/web", "--rules", "-o", "json")),
				&got); err != nil {
				t.Fatal(err)
			}
			for _, p := range got.Ports {
				if p.Protocol != "tcp" || p.Family != "IPv4" {
					continue
				}
				if (p.Tracked == nil) != (backend == "userspace") || p.Tracked != nil && *p.Tracked != connections {
					t.Errorf("tracked: %v, want %d, to %v: %+v", p.Tracked, connections, pods, p)
				}
				if (p.Connections == nil) != (backend == "iptables" || backend == "userspace") || p.Connections != nil &&
					*p.Connections != connections {
					t.Errorf("new: %v, want %d, but none with iptables and userspace", p.Connections, connections)
				}
				if (len(p.Rules) > 0) != (backend == "nftables") {
					t.Errorf("rules: %+v", p.Rules)
				}
			}
			if backend == "nftables" {
				wantListed(t, w, got)
				wantFastPath(t, w, socket)
				wantRefused(t, w)
			}
			text = askDaemon(t, socket, "status", "default/web", "--rules")
			wantLine(t, text, "IPv4 80/tcp", "forwarded .*")
			wantLine(t, text, "cluster IP", `172\.30\.0\.10:80/tcp`, "Cluster", "forwarded")
			wantLine(t, text, `10\.0\.0\.3:8080/tcp`, "<none>", `node-1 \(this node\)`, "<none>", `33\.3%`, ".*serving")
		})
	}
}

// wantFastPath checks that doctor says with which devices the fast path is on, or that the kernel lacks something.
func wantFastPath(t *testing.T, w *lab.World, socket string) {
	t.Helper()
	const on = `on, with \d+ devices \([a-z0-9-]+, [^)]*\)`
	want := regexp.MustCompile(`fast-path\s+IPv4: ` + on + `;\s+IPv6: ` + on)
	if vmapdtest.LacksFastPath(t) != nil {
		want = regexp.MustCompile(`fast-path\s+IPv4: not possible: `)
	}
	vmapdtest.Eventually(t, func() string {
		var out bytes.Buffer
		_ = w.Node.Do(func() error { // the text says it if that failed
			cli.Run(t.Context(), []string{"doctor", "--socket", socket}, nil, &out, &out)
			return nil
		})
		if text := strings.Join(strings.Fields(out.String()), " "); !want.MatchString(text) {
			return fmt.Sprintf("no %v in: %s", want, text)
		}
		return ""
	})
}

// wantRefused checks that connections to a Service without endpoints are counted, too.
func wantRefused(t *testing.T, w *lab.World) {
	t.Helper()
	for range 3 {
		if _, err := w.Client.Ask(t.Context(), "tcp",
			netip.MustParseAddrPort("172.30.0.11:80")); lab.FailureOf(err) != lab.Refused {
			t.Fatalf("want it refused, got %v", err)
		}
	}
	vmapdtest.Eventually(t, func() string {
		all := (&vmapdtest.Cluster{World: w}).Scrape(t)
		if n, _ := vmapdtest.Value(all, "vmapd_service_connections_total", "service=empty", "ip_family=IPv4"); n != 3 {
			return fmt.Sprintf("%v connections, want 3", n)
		}
		return ""
	})
}

// wantListed checks that the elements of a Service are those that nft lists, and that its maps and chains are there.
func wantListed(t *testing.T, w *lab.World, one status.One) {
	t.Helper()
	listed := vmapdtest.Feed(t, w.Node, "", "nft", "list", "ruleset")
	var names []string
	for _, p := range one.Ports {
		for _, line := range p.Rules {
			line = strings.TrimSpace(line)
			if name, ok := strings.CutSuffix(line, " {"); ok {
				names = append(names, name)
			}
			if element, ok := strings.CutSuffix(line, ","); ok {
				element, _, _ = strings.Cut(element, " counter") // which nft lists with its value
				if !strings.Contains(listed, element) {
					t.Errorf("nft does not list %q", element)
				}
			}
		}
	}
	for _, want := range []string{"map service-ips", "chain endpoints-3-to-4", "map endpoints"} {
		if !slices.Contains(names, want) {
			t.Errorf("the rules have no %s: %q", want, names)
		}
	}
}
