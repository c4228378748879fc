package diagnosis

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/internal/testbed/labtest"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/trace"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/model/modeltest/testlog"
)

// silentPort makes a pod's port 7 one that never answers.
const silentPort = "table inet silence { chain input { type filter hook input priority 0; meta l4proto { tcp, udp } " +
	"th dport 7 drop; }; }\n"

// traceWorld is a world with a daemon that has programmed all Services, and the flags with which
// vmapd trace knows them.
func traceWorld(t *testing.T, args ...string) (w *lab.World, known []string) {
	t.Helper()
	w = labtest.New(t)
	const broken = "testdata/broken.yaml"
	vmapdtest.Feed(t, w.Pods()[0].Namespace, silentPort, "nft", "-f", "-")
	p := vmapdtest.Start(t, w.Node, append([]string{
		"--from", vmapdtest.Demo(t), "--from", broken, "--hostname-override", lab.NodeName, "--socket", "",
	}, args...)...)
	p.WaitFor(t, "msg=ready")
	return w, []string{"-f", vmapdtest.Demo(t), "-f", broken, "--node-name", lab.NodeName}
}

// traced is a running vmapd trace.
type traced struct {
	*vmapdtest.Process
	stdout bytes.Buffer
}

// startTrace starts vmapd trace on the node, and waits until it is ready.
func startTrace(t *testing.T, ns *lab.Namespace, args ...string) *traced {
	t.Helper()
	if !slices.Contains(args, "--from") {
		args = append([]string{"--from", "any"}, args...)
	}
	p := &traced{Process: &vmapdtest.Process{Cmd: ns.Command(t.Context(), "/proc/self/exe", append([]string{"trace"},
		args...)...), Log: &testlog.Log{}}}
	p.Cmd.Args[0] = "vmapd"
	p.Cmd.Stderr, p.Cmd.Stdout = p.Log, &p.stdout
	if err := p.Cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(args, "node") {
		p.WaitFor(t, "waiting for")
	}
	return p
}

// told waits for the end, and returns the story.
func (p *traced) told(t *testing.T) string {
	t.Helper()
	if err := p.Cmd.Wait(); err != nil {
		t.Fatalf("vmapd trace: %v\n%s%s", err, p.Log, &p.stdout)
	}
	return unwrapped(p.stdout.String())
}

// unwrapped joins the lines of paragraphs.
func unwrapped(text string) string {
	var out strings.Builder
	open := false
	for line := range strings.Lines(text) {
		if open && strings.HasPrefix(line, "  ") && !strings.HasPrefix(line, "   -> ") {
			joined := strings.TrimSuffix(out.String(), "\n") + " " + strings.TrimLeft(line, " ")
			out.Reset()
			out.WriteString(joined)
			continue
		}
		out.WriteString(line)
		open = strings.HasPrefix(line, "=> ") || strings.HasPrefix(line, "   -> ") || strings.HasPrefix(line, "note: ") ||
			strings.Contains(line, "vmapd expects: ")
	}
	return out.String()
}

func TestTraceTellsWhatHappened(t *testing.T) {
	t.Parallel()
	w, known := traceWorld(t)
	const agrees, differs = "\nThis is what vmapd expects", "\nMISMATCH: vmapd expects: forwarded to 10.0.0."
	for _, tt := range []struct {
		name, network, dest string
		rules               string   // of somebody else, on the node
		want                []string // in the text
	}{
		{"an endpoint accepts", "tcp", "172.30.0.10:80", "", []string{
			"1. prerouting, from eth0\n", "   table ip vmapd, chain services, rule 4 (ip daddr . meta l4proto . th dport " +
				"vmap @service-ips) => goto endpoints-3-to-4\n",
			":8080 now.\n", ". forward, from eth0, to veth", "(accepted).\n   It left by eth0.\n",
			"=> forwarded to 10.0.0.", ", which accepted it.\n", agrees,
		}},
		{"an endpoint answers over UDP", "udp", "192.168.98.10:80", "", []string{
			"The source is 192.168.0.2:",
			"=> forwarded to 10.0.0.", ", which answered.\n",
		}},
		{"nothing listens over UDP", "udp", "172.30.0.30:80", "", []string{
			"=> forwarded to 10.0.0.2:9999 by veth1; 10.0.0.2 answered with an ICMP error: port unreachable.\n",
		}},
		{"no endpoint", "tcp", "172.30.0.11:80", "", []string{
			"=> rejected by table ip vmapd, chain reject-chain, rule 1 (", "reject with tcp reset), which is vmapd's.\n",
			agrees,
			"This is what vmapd expects: rejected: Service default/empty, its unnamed port, has no endpoint that can answer ",
		}},
		{
			"no such port", "tcp", "172.30.0.10:81", "",
			[]string{
				"chain prerouting-rest, rule 1 (ct status ", " jump cluster-ips-check)\n",
				"vmapd expects: rejected: 172.30.0.10 is a cluster IP, and its Service has no port 81/tcp ", agrees,
			},
		},
		{
			"no Service", "udp", "172.30.0.99:80", "",
			[]string{"=> dropped by table ip vmapd, chain cluster-ips-check, rule 2 (ip daddr @service-cidrs fib daddr type " +
				"!= local drop), which is vmapd's.\n", agrees},
		},
		{"a source range", "tcp", "192.168.98.20:80", "", []string{
			"=> dropped by table ip vmapd, ",
			"vmapd expects: dropped: 203.0.113.9 is not in loadBalancerSourceRanges ", agrees,
		}},
		{
			"somebody else's rule", "tcp", "172.30.0.10:80",
			"table inet theirs { chain forward { type filter hook forward priority 0; ip saddr 10.0.0.0/8 accept; tcp dport " +
				"{ 8080, 9090 } counter drop comment \"no web\"; }; }",
			[]string{"=> dropped by table inet theirs, chain forward, rule 2 (tcp dport { 8080, 9090 } counter drop comment \"no " +
				"web\"), which is not vmapd's.\n", "nft -a list chain inet theirs forward.\n", differs},
		},
		{
			"somebody else's rule about answers to this node's address", "tcp", "192.168.98.10:80",
			"table inet theirs { chain early { type filter hook prerouting priority raw; tcp sport 8080 drop; }; }",
			[]string{"But the answer was dropped on the return path, by table inet theirs, chain early, rule 1 (tcp sport 8080 drop)"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.rules != "" {
				vmapdtest.Feed(t, w.Node, tt.rules, "nft", "-f", "-")
				defer vmapdtest.Feed(t, w.Node, "delete table inet theirs", "nft", "-f", "-")
			}
			tellsOf(t, w, w.Client, known, tt.network, tt.dest, tt.want...)
		})
	}
}

// From the node, a trace makes a connection itself. The exit code tells whether it ended as expected, for its client.
func TestTraceConnects(t *testing.T) {
	t.Parallel()
	w, known := traceWorld(t)
	for _, tt := range []struct {
		dest              string
		verdict           trace.Verdict
		answer            trace.AnswerKind
		expect, otherwise string
	}{
		{"172.30.0.10:80", trace.Forwarded, trace.Accepted, "forwarded", ""},
		{"[fd00:172:30::10]:80", trace.Forwarded, trace.Accepted, "forwarded", ""},
		{"172.30.0.10:80/udp", trace.Forwarded, trace.Replied, "forwarded", ""},
		{"172.30.0.30:80", trace.Forwarded, trace.Reset, "rejected", ""}, // by the endpoint
		{
			"172.30.0.30:80", trace.Forwarded, trace.Reset, "forwarded=10.0.0.2",
			"expected forwarded, got: forwarded to 10.0.0.2:9999 by veth1, which refused it",
		},
		{"172.30.0.11:80", trace.Rejected, trace.Reset, "rejected", ""},
		{"172.30.0.60:80", trace.Forwarded, trace.NoAnswer, "dropped", ""},
		{"172.30.0.60:80/udp", trace.Forwarded, trace.NoAnswer, "forwarded=10.0.0.2:7", ""},
		{
			"172.30.0.60:80/udp", trace.Forwarded, trace.NoAnswer, "forwarded=10.0.0.3",
			"expected the endpoint 10.0.0.3, got: forwarded to 10.0.0.2:7",
		},
		{
			"127.0.0.1:4", trace.Delivered, trace.Reset, "not-a-service",
			"expected not a Service, got: delivered to 127.0.0.1:4",
		},
		{
			"192.168.0.2:4", trace.Delivered, trace.Reset, "not-a-service",
			"expected not a Service, got: delivered to 192.168.0.2:4",
		},
	} {
		args := []string{"--from", "node", "--wait", "300ms", "-o", "json", "--expect", tt.expect, tt.dest}
		p := startTrace(t, w.Node, append(known, args...)...)
		_ = p.Cmd.Wait()
		var s trace.Story
		if err := json.Unmarshal(p.stdout.Bytes(), &s); err != nil {
			t.Fatalf("%s: %v\n%s", tt.dest, err, p.Log)
		}
		if s.Verdict != tt.verdict || s.Answer.Kind != tt.answer || s.Differs {
			t.Errorf("%s: want %s and answer %s, got %s and %s: %s", tt.dest, tt.verdict, tt.answer, s.Verdict, s.Answer.Kind,
				s.Conclusion)
		}
		want := map[bool]int{false: 2}[tt.otherwise == ""]
		if got := p.Cmd.ProcessState.ExitCode(); got != want || !strings.Contains(p.Log.String(), tt.otherwise) {
			t.Errorf("%s, --expect %s: want exit code %d, got %d, and %q in\n%s", tt.dest, tt.expect, want, got, tt.otherwise,
				p.Log)
		}
	}
}

// tellsOf traces a connection, and compares the text.
func tellsOf(t *testing.T, w *lab.World, from *lab.Namespace, known []string, network, dest string, want ...string) {
	t.Helper()
	p := startTrace(t, w.Node, append(known, "-v", "--wait", "500ms", dest+"/"+network)...)
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		_, _ = from.Ask(t.Context(), network, netip.MustParseAddrPort(dest))
	}()
	text := p.told(t)
	<-asked
	for _, want := range want {
		if !strings.Contains(text, want) {
			t.Errorf("want %q in\n%s", want, text)
		}
	}
	if t.Failed() || testing.Verbose() {
		t.Logf("\n%s", text)
	}
	if got := vmapdtest.ListRuleset(t, w.Node); strings.Contains(got, "vmapd-trace") {
		t.Errorf("something is left:\n%s", got)
	}
}

// Without manifests, the daemon of the node knows names, and what vmapd expects.
func TestTraceAsksTheDaemon(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "vmapd.sock")
	w, _ := traceWorld(t, "--socket", socket)
	vmapdtest.Eventually(t, func() string {
		if _, err := os.Stat(socket); err != nil {
			return err.Error()
		}
		return ""
	})
	for dest, want := range map[string]string{
		"svc/web:tcp":    "\nThis is what vmapd expects.\n",
		"172.30.0.11:80": ", which is vmapd's.\nThis is what vmapd expects: rejected: ",
	} {
		p := startTrace(t, w.Node, "--socket", socket, "--from", "node", dest)
		if text := p.told(t); !strings.Contains(text, want) {
			t.Errorf("%s: want %q in\n%s%s", dest, want, text, p.Log)
		}
	}
	p := startTrace(t, w.Node, "--socket", socket+".none", "--from", "node", "172.30.0.10:80")
	if text := p.told(t); !strings.Contains(text, "=> forwarded to ") || strings.Contains(text, "expects") {
		t.Errorf("without a daemon, want a story without a comparison:\n%s", text)
	}
	if want := "vmapd: the expected result is unknown: no daemon answers: "; !strings.Contains(p.Log.String(), want) {
		t.Errorf("want %q, got %s", want, p.Log)
	}
}

// vmapd makes no connection of SCTP: it says so, and waits for the first packet of a client's.
func TestTraceWaitsForAClientOfSCTP(t *testing.T) {
	t.Parallel()
	w, known := traceWorld(t)
	p := startTrace(t, w.Node, append(known, "--from", "node", "--wait", "200ms", "203.0.113.9:80/sctp")...)
	p.WaitFor(t, "SCTP needs a client of its own: waiting for a new connection from node to 203.0.113.9:80/sctp, for 30s")
	packet := binary.BigEndian.AppendUint16(nil, 40000)
	packet = binary.BigEndian.AppendUint16(packet, 80)
	packet = append(packet, make([]byte, 8)...)                                          // no tag yet
	packet = append(packet, 1, 0, 0, 20, 0, 0, 0, 7, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1) // INIT
	binary.LittleEndian.PutUint32(packet[8:], crc32.Checksum(packet, crc32.MakeTable(crc32.Castagnoli)))
	err := w.Node.Do(func() error {
		conn, err := net.Dial("ip4:132", "203.0.113.9")
		if err == nil {
			_, err = conn.Write(packet)
			conn.Close()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if story := p.told(t); !strings.Contains(story, "=> forwarded to 203.0.113.9:80 by eth0") {
		t.Errorf("got:\n%s", story)
	}
}
