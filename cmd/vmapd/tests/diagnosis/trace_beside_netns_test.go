package diagnosis

import (
	"context"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/trace"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

// A trace of a busy destination costs no connection, and tells of one.
func TestTraceBesideAThousandConnectionsASecond(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: takes all processors")
	}
	w, known := traceWorld(t)
	const traces, rate = 10, 1000
	to := netip.MustParseAddrPort("172.30.0.10:80")
	// A busy machine takes seconds for an answer, and falls behind the rate, but loses nothing.
	load := lab.Load{Rate: rate, Timeout: time.Minute, Ask: func(ctx context.Context) (lab.Answer, error) {
		return w.Client.Ask(ctx, "tcp", to)
	}}
	stop := load.Start()
	for range traces {
		p := startTrace(t, w.Node, append(known, to.String())...)
		if got := strings.Count("\n"+p.told(t), "\n=> forwarded to "); got != 1 {
			t.Errorf("want one story, got %d:\n%s", got, &p.stdout)
		}
	}
	r := stop()
	t.Logf("beside %d traces: %v", traces, &r)
	if r.Lost() > 0 || r.Sent == 0 {
		t.Errorf("lost connections: %v", &r)
	}
}

// The kernel removes the rules of a trace that is killed, and two traces do not meddle.
func TestTracesEndAlone(t *testing.T) {
	w, known := traceWorld(t)
	hasTable := func(ns *lab.Namespace) bool {
		return strings.Contains(vmapdtest.ListRuleset(t, ns), "table ip vmapd-trace-")
	}
	killed := startTrace(t, w.Node, append(known, "172.30.0.30:80")...)
	if !hasTable(w.Node) {
		t.Error("the trace has no rules")
	}
	killed.Kill(t)
	if ownedTables(t, w.Node) {
		vmapdtest.Eventually(t, func() string {
			if hasTable(w.Node) {
				return "the rules of a killed trace are still there"
			}
			return ""
		})
	}

	web := startTrace(t, w.Node, append(known, "172.30.0.10:80")...)
	other := startTrace(t, w.Node, append(known, "172.30.0.10:81")...)
	for _, to := range []string{"172.30.0.10:80", "172.30.0.10:81"} {
		_, _ = w.Client.Ask(t.Context(), "tcp", netip.MustParseAddrPort(to))
	}
	if text := web.told(t); !strings.HasPrefix(text, "=> ") || !strings.Contains(text, ":80/tcp\n") {
		t.Errorf("want the story of port 80, got\n%s", text)
	}
	if text := other.told(t); !strings.HasPrefix(text, "=> ") || !strings.Contains(text, ":81/tcp\n") {
		t.Errorf("want the story of port 81, got\n%s", text)
	}
}

// ownedTables reports whether the kernel removes tables with their owner's end (Linux 5.12).
func ownedTables(t *testing.T, ns *lab.Namespace) bool {
	t.Helper()
	out, err := ns.Command(t.Context(), "nft", "add table ip owned { flags owner; }").CombinedOutput()
	if err != nil {
		t.Logf("this kernel has no owned tables: %s", out)
	}
	return err == nil
}

// From the node, a trace makes a connection itself.
func TestTraceConnects(t *testing.T) {
	t.Parallel()
	w, known := traceWorld(t)
	story := func(args ...string) trace.Story {
		t.Helper()
		p := startTrace(t, w.Node, append(append(known, "--from", "node", "--wait", "500ms", "-o", "json"), args...)...)
		var s trace.Story
		if err := json.Unmarshal([]byte(p.told(t)), &s); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s; %v %q", s.Conclusion, s.Differs, s.Hints)
		return s
	}
	for _, tt := range []struct {
		dest    string
		verdict trace.Verdict
		answer  trace.AnswerKind
	}{
		{"172.30.0.10:80", trace.Forwarded, trace.Accepted},
		{"[fd00:172:30::10]:80", trace.Forwarded, trace.Accepted},
		{"172.30.0.10:80/udp", trace.Forwarded, trace.Replied},
		{"172.30.0.30:80", trace.Forwarded, trace.Reset},
		{"172.30.0.11:80", trace.Rejected, trace.Reset},
		{"172.30.0.60:80/udp", trace.Forwarded, trace.NoAnswer},
		{"127.0.0.1:4", trace.Delivered, trace.Reset},
		{"192.168.0.2:4", trace.Delivered, trace.Reset},
	} {
		if s := story(tt.dest); s.Verdict != tt.verdict || s.Answer.Kind != tt.answer || s.Differs {
			t.Errorf("%s: want %s and answer %s, got %s and %s: %s", tt.dest, tt.verdict, tt.answer, s.Verdict, s.Answer.Kind, s.Conclusion)
		}
	}

	if s := story("172.30.0.60:80"); s.Tracking != "SYN_SENT, not answered" {
		t.Errorf("connection tracking: %s", s.Tracking)
	}
}

// The endpoints of a Service are tried until each was chosen, and the silent one is named first.
func TestTraceOfEachEndpoint(t *testing.T) {
	t.Parallel()
	w, known := traceWorld(t)
	vmapdtest.Feed(t, w.Node, "table inet theirs { chain out { type filter hook output priority 0; ip daddr 10.0.0.3 drop; }; }\n", "nft", "-f", "-")
	p := startTrace(t, w.Node, append(known, "--from", "node", "--each", "172.30.0.10:80")...)
	text := p.told(t)
	if !strings.HasPrefix(text, "=> 1 of 3 endpoints faulty: 10.0.0.3:8080") || !strings.Contains(text, "dropped by table inet theirs, chain out, rule 1") ||
		strings.Count(text, "which accepted it") != 2 {
		t.Errorf("got\n%s", text)
	}
}

// vmapd's own listeners are endpoints of a connection: on loopback, and with userspace.
func TestTraceOfListeners(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		dest string
		args []string
	}{
		{"127.0.0.1:30080", []string{"--nodeport-addresses=primary,localhost"}},
		{"172.30.0.10:80", []string{"--backend=userspace"}},
	} {
		socket := filepath.Join(t.TempDir(), "vmapd.sock")
		w, _ := traceWorld(t, append(tt.args, "--socket", socket)...)
		p := startTrace(t, w.Node, "--socket", socket, "--from", "node", "--expect", "forwarded", tt.dest)
		if text := p.told(t); !strings.HasPrefix(text, "=> delivered to "+tt.dest+" by vmapd's listener") || !strings.Contains(text, "\nThis is what vmapd expects.\n") {
			t.Errorf("%s: got\n%s", tt.dest, text)
		}
	}
}

// A pod's interface with a smaller MTU than the node's swallows full packets alone.
func TestTraceOfASmallMTU(t *testing.T) {
	t.Parallel()
	w, known := traceWorld(t)
	for _, pod := range w.Pods() {
		vmapdtest.Feed(t, pod.Namespace, "table inet small { chain in { type filter hook input priority 0; meta length > 1000 drop; }; }\n", "nft", "-f", "-")
	}
	p := startTrace(t, w.Node, append(known, "--from", "node", "172.30.0.10:80")...)
	if text := p.told(t); !strings.Contains(text, "which accepted it. But a packet with ") || !strings.Contains(text, "though small ones pass: an MTU on the path is smaller") {
		t.Errorf("got\n%s", text)
	}
}

// Another program's DNAT to a cluster IP is the only translation of a connection: it is named, and where the packet went.
func TestTraceOfASecondTranslation(t *testing.T) {
	t.Parallel()
	w, known := traceWorld(t)
	vmapdtest.Feed(t, w.Node, "table ip theirs { chain pre { type nat hook prerouting priority -110; ip daddr 203.0.113.99 dnat to 172.30.0.10; }; }\n", "nft", "-f", "-")
	vmapdtest.Feed(t, w.Client, "", "ip", "route", "replace", "203.0.113.99", "via", lab.NodeIP4)
	tellsOf(t, w, known, "tcp", "203.0.113.99:80", "=> translated to 172.30.0.10:80 by table ip theirs, chain pre, rule 1 (ip daddr 203.0.113.99 dnat to 172.30.0.10), which is not vmapd's. "+
		"That is an address of Service default/web, and the kernel translates once: the packet left by eth0")
}

// An interrupted trace has expected nothing.
func TestAnInterruptedTrace(t *testing.T) {
	t.Parallel()
	w, known := traceWorld(t)
	p := startTrace(t, w.Node, append(known, "--expect", "forwarded", "172.30.0.10:80")...)
	if err := p.Cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = p.Cmd.Wait()
	if code := p.Cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("exit code %d, want 130", code)
	}
}
