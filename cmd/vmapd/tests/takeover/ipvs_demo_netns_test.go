package takeover

import (
	"bytes"
	"log/slog"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/internal/testbed/labtest"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/cli"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/leftovers"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest/testlog"
	"github.com/vmapd/vmapd/sync/manifest"
)

// The demo's cluster by IPVS: pods answer the client; one that goes finishes its
// connections while new ones go elsewhere; and nothing is left in the end.
func TestTheDemoByIPVS(t *testing.T) {
	vmapdtest.NeedIPVS(t)
	w := labtest.New(t)
	log := &testlog.Log{}
	b := vmapdtest.OpenIPVS(t, w.Node, slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	apply := func(folders ...string) {
		t.Helper()
		var paths []string
		for _, f := range folders {
			paths = append(paths, filepath.Join(vmapdtest.Testdata(t), "demo", f))
		}
		objects, errs, err := manifest.Load(paths)
		if err != nil || len(errs) > 0 {
			t.Fatal(err, errs)
		}
		builder := model.NewBuilder(model.Config{NodeName: lab.NodeName, NodePortAddresses: model.NodePortAddresses{Primary: true}})
		objects.ApplyTo(builder)
		s := builder.Snapshot()
		if err := w.Node.Do(func() error { return b.Apply(t.Context(), s) }); err != nil {
			t.Fatal(err)
		}
	}
	list := func() string {
		out, err := w.Node.Command(t.Context(), "ipvsadm", "-Ln").CombinedOutput()
		if err != nil {
			t.Fatalf("ipvsadm: %v\n%s", err, out)
		}
		return string(out)
	}
	apply("before")
	vip := netip.MustParseAddrPort("172.30.0.10:80")
	var open []*lab.Conn
	pods := map[string]bool{}
	for range 6 {
		c, err := w.Client.Dial(t.Context(), "tcp4", vip)
		if err != nil {
			t.Fatalf("%v\n%s", err, list())
		}
		t.Cleanup(func() { _ = c.Close() })
		a, err := c.Ask(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		pods[a.Pod] = true
		open = append(open, c)
	}
	if len(pods) != 3 {
		t.Errorf("these answered: %v\n%s", pods, list())
	}
	apply("before/services.yaml", "after")
	if got := list(); !strings.Contains(got, "10.0.0.2:8080") {
		t.Errorf("the pod that goes has lost its connections:\n%s", got)
	}
	for i, c := range open {
		if _, err := c.Ask(t.Context()); err != nil {
			t.Errorf("connection %d: %v\n%s", i, err, list())
		}
	}
	if err := w.Node.Do(func() error {
		return leftovers.NewFinder(ipvs.Options{}).Remove()
	}); err != nil {
		t.Fatal(err)
	}
	if has := leftByBackends(t, w); len(has) != 0 {
		t.Errorf("left: %v", has)
	}
	t.Log(log)
}

// What render prints for IPVS, the programs that it names take, in its order.
func TestTheProgramsTakeWhatIsRenderedByIPVS(t *testing.T) {
	vmapdtest.NeedIPVS(t)
	w := labtest.New(t)
	var stdout, stderr bytes.Buffer
	if code := cli.Run(t.Context(), []string{"render", "-f", vmapdtest.Demo(t), "--backend=ipvs"}, nil, &stdout, &stderr); code != 0 {
		t.Fatalf("exit code %d: %s", code, &stderr)
	}
	takers := map[string][]string{
		"ipset restore": {"ipset", "restore"}, "ipvsadm -R": {"ipvsadm", "-R"},
		"iptables-restore": {"iptables-restore", "--noflush", "--test"}, "ip6tables-restore": {"ip6tables-restore", "--noflush", "--test"},
	}
	taken := 0
	for _, part := range strings.Split(stdout.String(), "# IPv")[1:] {
		label, text, _ := strings.Cut(part, "\n")
		args := takers[strings.TrimSpace(label[len("4: "):])]
		if args == nil {
			continue // sysctl, ip
		}
		c := w.Node.Command(t.Context(), args[0], args[1:]...)
		c.Stdin = strings.NewReader(text)
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v: %v\n%s\n%s", args, err, out, text)
		}
		taken++
	}
	if want := 2 * 3; taken != want {
		t.Errorf("%d parts were tried, want %d", taken, want)
	}
}
