package main

import (
	"bytes"
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/internal/testbed/labtest"
)

// process is vmapd, running in a namespace.
type process struct {
	cmd *lab.Cmd
	log *syncBuffer
}

type syncBuffer = labtest.Log

func newLab(t *testing.T) *lab.World {
	t.Helper()
	return labtest.New(t)
}

func startVmapd(t *testing.T, ns *lab.Namespace, args ...string) *process {
	t.Helper()
	p := &process{cmd: ns.Command(t.Context(), "/proc/self/exe", args...), log: &syncBuffer{}}
	p.cmd.Args[0] = "vmapd"
	p.cmd.Stderr = p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// waitFor waits until the log has a text.
func (p *process) waitFor(t *testing.T, text string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !strings.Contains(p.log.String(), text); {
		if time.Now().After(deadline) {
			t.Fatalf("the log does not say %q:\n%s", text, p.log)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func list(t *testing.T, ns *lab.Namespace, args ...string) string {
	t.Helper()
	out, err := ns.Command(t.Context(), "nft", append(args, "list", "ruleset")...).CombinedOutput()
	if err != nil {
		t.Fatalf("nft list ruleset: %v\n%s", err, out)
	}
	var kept []string
	for line := range strings.Lines(string(out)) {
		// Who owns the table changes with each process.
		line, _, _ = strings.Cut(line, " progname")
		line, _, _ = strings.Cut(line, " # progname")
		line = strings.TrimRight(line, " #\n")
		if line != "" && !strings.HasPrefix(line, "\tflags") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\n")
}

// A client that goes on connecting must not notice that vmapd is killed and started
// again; and the new one finds that there is nothing to write.
func TestKillAndRestartWritesNothingAndLosesNothing(t *testing.T) {
	w := newLab(t)
	args := []string{"--from", filepath.Join(testdata(t), "demo/before"), "--hostname-override", lab.NodeName, "-v", "4"}
	first := startVmapd(t, w.Node, args...)
	first.waitFor(t, "msg=ready")
	before := list(t, w.Node, "-a")

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	report := make(chan lab.Report)
	vip := netip.MustParseAddrPort("172.30.0.10:80")
	const rate = 200
	go func() {
		report <- lab.Load{Rate: rate, Ask: func(ctx context.Context) (lab.Answer, error) {
			return w.Client.Ask(ctx, "tcp4", vip)
		}}.Run(ctx)
	}()
	time.Sleep(500 * time.Millisecond) // the load is under way
	if err := first.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.cmd.Wait() // killed, of course
	time.Sleep(500 * time.Millisecond)
	second := startVmapd(t, w.Node, args...)
	second.waitFor(t, "msg=ready")
	time.Sleep(500 * time.Millisecond)
	stop()
	r := <-report
	t.Log(r.String())
	if r.Lost() > 0 || r.Sent < rate {
		t.Errorf("the client did notice: %v", &r)
	}
	if diff := cmp.Diff(before, list(t, w.Node, "-a")); diff != "" {
		t.Errorf("the restart changed something, or gave it another handle (-before +after):\n%s", diff)
	}
	if strings.Contains(second.log.String(), "msg=applied") {
		t.Errorf("the restart sent a batch:\n%s", second.log)
	}

	// SIGTERM ends it, and leaves the rules.
	if err := second.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := second.cmd.Wait(); err != nil {
		t.Errorf("vmapd did not end well: %v\n%s", err, second.log)
	}
	if diff := cmp.Diff(before, list(t, w.Node, "-a")); diff != "" {
		t.Errorf("the end changed something (-before +after):\n%s", diff)
	}

	// Cleanup removes them.
	clean := startVmapd(t, w.Node, "cleanup")
	if err := clean.cmd.Wait(); err != nil {
		t.Errorf("cleanup: %v\n%s", err, clean.log)
	}
	if got := list(t, w.Node); got != "" {
		t.Errorf("cleanup left:\n%s", got)
	}
}

// One bad file must not take away what is programmed, and what is wrong with it is said
// once, with its line.
func TestABrokenManifestKeepsWhatIsProgrammed(t *testing.T) {
	w := newLab(t)
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name+".new"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, name+".new"), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	service := func(port string) string {
		return "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec:\n  clusterIP: 172.30.0.10\n  ports:\n  - port: " + port + "\n"
	}
	write("web.yaml", service("80"))
	p := startVmapd(t, w.Node, "--from", dir, "-v", "4")
	p.waitFor(t, "msg=ready")
	before := list(t, w.Node)
	write("web.yaml", service("eighty"))
	p.waitFor(t, "web.yaml:1: Service default/web: json: cannot unmarshal string into Go struct field ServicePort.spec.ports.port of type int32")
	if diff := cmp.Diff(before, list(t, w.Node)); diff != "" {
		t.Errorf("a broken file changed the rules (-before +after):\n%s", diff)
	}
	write("web.yaml", service("81"))
	for deadline := time.Now().Add(5 * time.Second); !strings.Contains(list(t, w.Node), "172.30.0.10 . tcp . 81"); {
		if time.Now().After(deadline) {
			t.Fatalf("the mended file was not programmed:\n%s", p.log)
		}
	}
}

func decode(t *testing.T, path string) []runtime.Object {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []runtime.Object
	for doc := range bytes.SplitSeq(text, []byte("\n---\n")) {
		var kind struct{ Kind string }
		if err := yaml.Unmarshal(doc, &kind); err != nil {
			t.Fatal(err)
		}
		o := map[string]runtime.Object{
			"Service": &corev1.Service{}, "Node": &corev1.Node{},
			"EndpointSlice": &discoveryv1.EndpointSlice{}, "ServiceCIDR": &networkingv1.ServiceCIDR{},
		}[kind.Kind]
		if err := yaml.Unmarshal(doc, o); err != nil {
			t.Fatal(err)
		}
		all = append(all, o)
	}
	return all
}
