package takeover

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/internal/testbed/labtest"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/cli"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// kubeProxyIsBack puts on a node what kube-proxy has there, in all its modes, and what
// belongs to others.
func kubeProxyIsBack(t *testing.T, node *lab.Namespace) {
	t.Helper()
	rules := testaid.Read(t, "testdata/kube-proxy.rules")
	rules6 := strings.NewReplacer("10.96.0.1/32", "fd00::1/128", "192.168.0.3/32", "fd00::3/128").Replace(rules)
	for _, variant := range []string{"legacy", "nft"} {
		vmapdtest.Feed(t, node, rules, "iptables-"+variant+"-restore", "--noflush")
		vmapdtest.Feed(t, node, rules6, "ip6tables-"+variant+"-restore", "--noflush")
	}
	vmapdtest.Feed(t, node, "", "nft", "-f", "testdata/kube-proxy.nft")
}

var (
	countersAndComments = regexp.MustCompile(`(?m)^#.*\n| \[\d+:\d+\]$`)
	// emptyTable is what iptables-save prints of a table that was used once.
	emptyTable = regexp.MustCompile(`(?m)^\*.*\n(^:[A-Z]+ ACCEPT\n)*COMMIT\n`)
)

// rulesets lists what is on a node, of everybody.
func rulesets(t *testing.T, node *lab.Namespace) string {
	t.Helper()
	var all strings.Builder
	for _, program := range []string{"iptables-legacy-save", "ip6tables-legacy-save", "iptables-nft-save", "ip6tables-nft-save"} {
		all.WriteString("# " + program + "\n")
		all.WriteString(emptyTable.ReplaceAllString(countersAndComments.ReplaceAllString(vmapdtest.Feed(t, node, "", program), ""), ""))
	}
	for table := range strings.Lines(vmapdtest.Feed(t, node, "", "nft", "list", "tables")) {
		switch words := strings.Fields(table); words[2] {
		case "filter", "nat", "mangle", "raw": // iptables' own, listed above
		default:
			all.WriteString(vmapdtest.Feed(t, node, "", "nft", append([]string{"list"}, words...)...))
		}
	}
	return all.String()
}

// withoutVmapd lists what is on a node that has kube-proxy and never had vmapd.
func withoutVmapd(t *testing.T) string {
	t.Helper()
	ns, err := lab.NewNamespace("kube-proxy's")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ns.Close() }()
	kubeProxyIsBack(t, ns)
	return rulesets(t, ns)
}

// rendered is what vmapd would program for the demo's manifests.
func rendered(t *testing.T, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	args = append([]string{"render", "-f", vmapdtest.Demo(t)}, args...)
	if code := cli.Run(t.Context(), args, nil, &stdout, &stderr); code != 0 {
		t.Fatalf("exit code %d\n%s", code, &stderr)
	}
	return stdout.String()
}

// While the daemon runs, its tables can't be removed (from Linux 6.9 on), and the command
// says what to do.
func TestCleanupWhileTheDaemonRuns(t *testing.T) {
	w := labtest.New(t)
	p := vmapdtest.StartDemo(t, w.Node)
	if !strings.Contains(vmapdtest.Feed(t, w.Node, "", "nft", "list", "ruleset"), "flags owner") {
		t.Skip("this kernel lacks table flags owner and persist")
	}
	kubeProxyIsBack(t, w.Node)
	clean := vmapdtest.Start(t, w.Node, "cleanup", "--keep-kube-proxy")
	if err := clean.Cmd.Wait(); err == nil || !strings.Contains(clean.Log.String(), "stop the daemon first") {
		t.Errorf("got %v and:\n%s", err, clean.Log)
	}
	if has := leftByBackends(t, w); len(has["nftables"]) == 0 {
		t.Error("the tables are gone from under the daemon")
	}
	vmapdtest.Stop(t, p)
	// Without the daemon, nft alone can remove them, too.
	for _, family := range []string{"ip", "ip6"} {
		vmapdtest.Feed(t, w.Node, "", "nft", "delete", "table", family, "vmapd")
	}
	if has := leftByBackends(t, w); len(has) > 0 {
		t.Errorf("still there: %v", has)
	}
}
