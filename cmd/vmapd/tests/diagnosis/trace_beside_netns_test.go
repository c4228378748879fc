package diagnosis

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

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
		if text := p.told(t); !strings.HasPrefix(text, "=> delivered to "+tt.dest+" by vmapd's listener") ||
			!strings.Contains(text, "\nThis is what vmapd expects.\n") {
			t.Errorf("%s: got\n%s", tt.dest, text)
		}
	}
}

// Another program's DNAT to a cluster IP is the only translation of a connection: it is named, and where the packet
// went.
func TestTraceOfASecondTranslation(t *testing.T) {
	t.Parallel()
	w, known := traceWorld(t)
	vmapdtest.Feed(t, w.Node, "table ip theirs { chain pre { type nat hook prerouting priority -110; ip daddr "+
		"203.0.113.99 dnat to 172.30.0.10; }; }\n", "nft", "-f", "-")
	vmapdtest.Feed(t, w.Client, "", "ip", "route", "replace", "203.0.113.99", "via", lab.NodeIP4)
	tellsOf(t, w, w.Client, known, "tcp", "203.0.113.99:80",
		"=> translated to 172.30.0.10:80 by table ip theirs, chain pre, rule 1 (ip daddr 203.0.113.99 dnat to "+
			"172.30.0.10), which is not vmapd's. "+
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
