package pages

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/model/nettest"
)

// monitoring is the folder with the rules and the dashboard.
func monitoring(t *testing.T) string {
	t.Helper()
	return filepath.Join(vmapdtest.Folder(t), "deploy/monitoring")
}

// ruleFile is a rule file of Prometheus.
type ruleFile struct {
	Groups []struct {
		Rules []struct {
			Alert, Record, Expr string
			Annotations         map[string]string
		}
	}
}

func readMonitoring(t *testing.T, file string, into any) string {
	t.Helper()
	text := testaid.Read(t, filepath.Join(monitoring(t), file))
	if into != nil {
		if err := yaml.Unmarshal([]byte(text), into); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	return text
}

// promtool returns the path of the program, which is of Debian's package prometheus.
func promtool(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"promtool", filepath.Join(vmapdtest.Folder(t), "../../bin/promtool")} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	nettest.Missing(t, "promtool, in bin or the PATH: .ci/run gets it")
	return ""
}

func TestRulesOfMonitoring(t *testing.T) {
	t.Parallel()
	tool, err := filepath.Abs(promtool(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"check", "rules", "alerts.yaml", "recording.yaml"}, {"test", "rules", "tests.yaml"}} {
		cmd := exec.CommandContext(t.Context(), tool, args...)
		cmd.Dir = monitoring(t)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// Each alert has a unit test with a case in which it fires, and a section of the runbooks.
func TestAlertsHaveTestsAndRunbooks(t *testing.T) {
	var rules ruleFile
	readMonitoring(t, "alerts.yaml", &rules)
	tested := readMonitoring(t, "tests.yaml", nil)
	runbooks := readMonitoring(t, "../../docs/operate.md", nil)
	var sections []string
	for _, m := range regexp.MustCompile(`(?m)^### (Vmapd\w+)$`).FindAllStringSubmatch(runbooks, -1) {
		sections = append(sections, m[1])
	}
	var alerts []string
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			alerts = append(alerts, r.Alert)
			if !strings.Contains(tested, "    alertname: "+r.Alert+"\n    exp_alerts:\n    - exp_labels: ") {
				t.Errorf("%s: no unit test in which it fires", r.Alert)
			}
			if want := "/docs/operate.md#" + strings.ToLower(r.Alert); !strings.HasSuffix(r.Annotations["runbook_url"], want) {
				t.Errorf("%s: the runbook is %s, want …%s", r.Alert, r.Annotations["runbook_url"], want)
			}
		}
	}
	if len(alerts) == 0 || !slices.Equal(alerts, sections) {
		t.Errorf("the runbooks do not have the sections of the alerts, in their order: want %v, got %v", alerts, sections)
	}
}

// usedMetric is a name of a metric or of a recording rule in an expression.
var usedMetric = regexp.MustCompile(`\b(?:[a-z_]+:)?(?:vmapd|kubeproxy|kubernetes|process)_[a-z0-9_]+(?::[a-z0-9_]+)?\b`)

// Rules and the dashboard name only metrics that vmapd has, and the recording rules.
func TestMonitoringKnowsOurMetrics(t *testing.T) {
	known := map[string]bool{"process_resident_memory_bytes": true, "process_cpu_seconds_total": true} // of client_golang
	text := testaid.Read(t, vmapdtest.Folder(t)+"/internal/metrics/testdata/nftables.prom")
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)$`).FindAllStringSubmatch(text, -1) {
		known[m[1]] = true
		if m[2] == "histogram" {
			known[m[1]+"_bucket"], known[m[1]+"_sum"], known[m[1]+"_count"] = true, true, true
		}
	}
	exprs := map[string][]string{} // by file
	for _, file := range []string{"recording.yaml", "alerts.yaml"} {
		var rules ruleFile
		readMonitoring(t, file, &rules)
		for _, g := range rules.Groups {
			for _, r := range g.Rules {
				exprs[file] = append(exprs[file], r.Expr)
				known[r.Record] = true
			}
		}
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(readMonitoring(t, "dashboard.json", nil)), &dashboard); err != nil {
		t.Fatal(err)
	}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			exprs["dashboard.json"] = append(exprs["dashboard.json"], target.Expr)
		}
	}
	for file, list := range exprs {
		for _, expr := range list {
			names := usedMetric.FindAllString(expr, -1)
			if len(names) == 0 {
				t.Errorf("%s: no metric in %s", file, expr)
			}
			for _, name := range names {
				if !known[name] {
					t.Errorf("%s: there is no metric %s: %s", file, name, expr)
				}
			}
		}
	}
	for _, file := range []string{"recording.yaml", "alerts.yaml", "dashboard.json"} {
		if len(exprs[file]) == 0 {
			t.Errorf("%s has no expression", file)
		}
	}
}

// The operator's objects have the rules of the files that promtool tests.
func TestPrometheusRulesAreUpToDate(t *testing.T) {
	var want strings.Builder
	want.WriteString("# alerts.yaml and recording.yaml as objects of the Prometheus operator; make golden writes this file.\n")
	for i, name := range []string{"alerts", "recording"} {
		if i > 0 {
			want.WriteString("---\n")
		}
		want.WriteString("apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  name: vmapd-" + name +
			"\n  namespace: kube-system\n  labels: {k8s-app: vmapd}\nspec:\n")
		for line := range strings.Lines(readMonitoring(t, name+".yaml", nil)) {
			if strings.TrimSpace(line) != "" {
				line = "  " + line
			}
			want.WriteString(line)
		}
	}
	const file = "prometheusrules.yaml"
	if *testaid.Update {
		testaid.Write(t, filepath.Join(monitoring(t), file), want.String())
	}
	if got := readMonitoring(t, file, nil); got != want.String() {
		t.Errorf("%s is not made of the rule files; make golden writes it", file)
	}
}
