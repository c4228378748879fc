package diagnosis

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// A breakage is a way to break a Service or a node, with the command that tells an administrator the cause.
// Each is tried in a world of its own: a client, a node with vmapd, three pods and an API server.
type breakage struct {
	name string
	// prepare breaks something before vmapd starts; nil: on a node on which all is well, doctor must
	// have only lines that are ok, and web must answer.
	prepare func(t *testing.T, p *patient)
	args    []string // more flags of the daemon
	broken  bool     // connections to web's cluster IP fail
	notUp   bool     // the daemon does not become ready, or is not started by startUp
	// spoil breaks something while vmapd runs.
	spoil func(t *testing.T, p *patient)
	// symptom shows with packets that a connection fails or, where packets can't, that something else
	// does; nil: nothing fails yet.
	symptom func(t *testing.T, p *patient)
	// meanwhile acts while the command runs, until it is done; nil: nothing.
	meanwhile func(t *testing.T, p *patient, done <-chan struct{})

	command []string // vmapd's subcommand
	want    string   // in its output, whose spaces and breaks are one space each
	// firstLine: want begins the first line that says something, be it a verdict or a failure.
	firstLine bool
	more      []string // further texts in the same output
	exit      int      // the exit code

	took time.Duration // until the command had said it
}

// patient is a cluster with a node on which something may be broken.
type patient struct {
	*vmapdtest.Cluster
	daemon *vmapdtest.Process // nil before it is started
	socket string
	// through is a program that runs the subcommands of breakages, with its arguments.
	through []string
}

// startUp starts vmapd.
func (p *patient) startUp(t *testing.T, args ...string) {
	t.Helper()
	args = append([]string{"--kubeconfig", p.Kubeconfig(), "--hostname-override", lab.NodeName, "--socket", p.socket},
		args...)
	if !slices.Contains(args, "--config") {
		// A small machine has a lower limit of connections, which can't be changed in a network namespace.
		args = append(args, "--conntrack-max-per-core=0")
	}
	if !slices.Contains(args, "--cluster-cidr") && !slices.Contains(args, "--config") {
		args = append(args, "--cluster-cidr", "10.0.0.0/24,fd00:10::/64")
	}
	p.daemon = p.Start(t, args...)
}

// startReady starts vmapd, and waits until it is ready.
func (p *patient) startReady(t *testing.T, args ...string) {
	t.Helper()
	p.startUp(t, args...)
	p.daemon.WaitFor(t, "msg=ready")
}

func newPatient(t *testing.T) *patient {
	t.Helper()
	dir, err := os.MkdirTemp("", "vmapd") //nolint:usetesting // the test's folder has too long a path for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return &patient{Cluster: vmapdtest.NewCluster(t), socket: filepath.Join(dir, "vmapd.sock")}
}

// vmapd runs a subcommand on the node. Breaks and spaces in the output become one space each.
func (p *patient) vmapd(t *testing.T, args ...string) (output string, exit int) {
	t.Helper()
	switch args[0] {
	case "doctor", "explain", "status", "services", "endpoints", "connections", "trace":
		args = append(args, "--socket", p.socket)
	}
	return p.vmapdAlone(t, args...)
}

// vmapdAlone runs a subcommand on the node that does not ask the daemon.
func (p *patient) vmapdAlone(t *testing.T, args ...string) (output string, exit int) {
	t.Helper()
	args = append(append(slices.Clone(p.through), vmapdtest.Program(t)), args...)
	cmd := p.Node.Command(context.WithoutCancel(t.Context()), args[0], args[1:]...)
	out, err := cmd.CombinedOutput()
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		exit = ended.ExitCode()
	} else if err != nil {
		t.Fatalf("vmapd %s: %v", strings.Join(args, " "), err)
	}
	return strings.Join(strings.Fields(string(out)), " "), exit
}

// run tries a breakage.
func (b *breakage) run(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	if b.prepare != nil {
		b.prepare(t, p)
	}
	if p.daemon == nil && !b.notUp {
		p.startReady(t, b.args...)
	}
	if b.prepare == nil && len(b.args) == 0 {
		p.wantHealthy(t)
	}
	if b.spoil != nil {
		b.spoil(t, p)
	}
	if b.symptom != nil {
		b.symptom(t, p)
	}
	vmapdtest.Eventually(t, func() string {
		done := make(chan struct{})
		var acting sync.WaitGroup
		if b.meanwhile != nil {
			acting.Go(func() { b.meanwhile(t, p, done) })
		}
		started := time.Now()
		output, exit := p.vmapd(t, b.command...)
		b.took = time.Since(started)
		close(done)
		acting.Wait()
		for _, want := range append([]string{b.want}, b.more...) {
			if !strings.Contains(output, want) {
				return "vmapd " + strings.Join(b.command, " ") + " does not say " + want + ":\n" + output
			}
		}
		if first := strings.Index(output, b.want[:len("=> ")]); b.firstLine && !strings.HasPrefix(output[first:], b.want) {
			return "vmapd " + strings.Join(b.command, " ") + " does not begin with " + b.want + ":\n" + output
		}
		if exit != b.exit {
			t.Errorf("exit code %d, want %d", exit, b.exit)
		}
		return ""
	})
	if b.broken {
		p.wantNoContrary(t, *b)
	}
}

// wantNoContrary checks that no command says of a connection that fails that it works, or that nothing is in its path:
// where doctor names the cause, its check has no line that is ok; where trace names another program's rule, doctor
// does not say that there is none.
func (p *patient) wantNoContrary(t *testing.T, b breakage) {
	t.Helper()
	fine := "ok firewall no other program"
	if check := strings.Fields(b.want)[1]; b.command[0] == "doctor" {
		fine = "ok " + check + " "
	}
	named := b.command[0] == "doctor" || strings.Contains(b.want, "which is not vmapd's")
	for _, command := range [][]string{
		{"doctor"},
		{"explain", "--from", lab.ClientIP4, vmapdtest.WebVIP.String()},
		{"trace", "--from", "node", "--wait", "300ms", vmapdtest.WebVIP.String()},
	} {
		output, _ := p.vmapd(t, command...)
		for _, contrary := range []string{"none is in the way", "can be reached", "works", fine} {
			if strings.Contains(output, contrary) && (contrary != fine || named) {
				t.Errorf("vmapd %s says %q of a node where connections fail:\n%s", command[0], contrary, output)
			}
		}
		_, verdict, _ := strings.Cut(output, "=> ")
		answered := strings.Contains(verdict, "which accepted it. ") || strings.Contains(verdict, "which answered. ")
		if refused := strings.Contains(output, "no answer in time"); command[0] == "trace" && answered && refused &&
			!strings.Contains(verdict, "But ") {
			t.Errorf("the verdict contradicts the connection:\n%s", output)
		}
	}
}

// wantHealthy checks that all is well, by the words of doctor and with connections.
func (p *patient) wantHealthy(t *testing.T) {
	t.Helper()
	vmapdtest.Eventually(t, func() string {
		output, exit := p.vmapd(t, "doctor")
		if exit != 0 || !strings.Contains(output, "0 failures, 0 warnings, ") {
			return "doctor says of a healthy node:\n" + output
		}
		if all := vmapdtest.Overview(t, p.socket); vmapdtest.Problems(all) != "" || !all.Ready {
			return "status says of a healthy node: " + vmapdtest.Problems(all)
		}
		return ""
	})
	for _, to := range []netip.AddrPort{vmapdtest.WebVIP, vmapdtest.WebNodePort} {
		p.Ask(t, to)
	}
}

// wantSilence checks that an address does not answer the client, with a new connection each time.
func (p *patient) wantSilence(t *testing.T, from *lab.Namespace, to netip.AddrPort) {
	t.Helper()
	if a, err := from.Ask(t.Context(), "tcp", to); err == nil {
		t.Errorf("%v answers %s: %s", to, from.Name(), a.Pod)
	}
}

// Each breakage has a line in docs/troubleshooting.md, in which … stands for any text; and each of doctor's lines there
// is that of a breakage.
func TestTroubleshootingHasEachBreakage(t *testing.T) {
	page := testaid.Read(t, vmapdtest.Folder(t)+"/docs/troubleshooting.md")
	_, text, _ := strings.Cut(page, "\n## From symptom to cause\n")
	ofDoctor, text, _ := strings.Cut(text, "\n## ")
	_, ofTrace, _ := strings.Cut(text, "\n## trace\n")
	lines := regexp.MustCompile("`((?:fail|warn|ok|…) [^`]*)`").FindAllStringSubmatch(ofDoctor, -1)
	traced := regexp.MustCompile("(?m)^\\| `([^`]*)`").FindAllStringSubmatch(ofTrace, -1)
	found := map[string]bool{}
	table := tableBreakages() // whose lines the page has in the table, too
	for i, b := range slices.Concat(table, nodeBreakages(), clusterBreakages(), processBreakages(), traceBreakages()) {
		said := strings.Join(append([]string{b.want}, b.more...), " ")
		known := false
		for _, line := range slices.Concat(lines, traced) {
			if !slices.ContainsFunc(strings.Split(line[1], "…"), func(part string) bool {
				return !strings.Contains(said,
					strings.Trim(part, " :"))
			}) {
				known, found[line[1]] = true, true
			}
		}
		if !known && i >= len(table) {
			t.Errorf("no line for %q: %s", b.name, said)
		}
	}
	for _, line := range lines {
		if !found[line[1]] {
			t.Errorf("no breakage has the line %q", line[1])
		}
	}
	if len(lines) < 20 {
		t.Errorf("%d lines", len(lines))
	}
}
