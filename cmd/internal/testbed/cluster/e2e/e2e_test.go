package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTheListOfTestsIsValid(t *testing.T) {
	all := Tests()
	if len(all) < 100 {
		t.Errorf("the list has %d tests, want 100 at least", len(all))
	}
	names := map[string]bool{}
	for _, test := range all {
		if !strings.HasPrefix(test.Name, "[") || names[test.Name] {
			t.Errorf("%q is in it twice, or not the full name", test.Name)
		}
		names[test.Name] = true
	}
}

func TestListOfTests(t *testing.T) {
	got := parseTests("# Services.\n[sig] a [Conformance]\n\nalone: [sig] b\n[sig] c [Serial]\nsix nodes: [sig] d\n")
	want := []Test{{Name: "[sig] a [Conformance]"}, {Name: "[sig] b", Alone: true}, {Name: "[sig] c [Serial]", Alone: true}, {Name: "[sig] d", Nodes: 6}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// report has the shape of Ginkgo's reports: the suite's own nodes, then tests, those that were not
// selected included.
func report(specs ...string) string {
	return `[{"SuiteDescription": "Kubernetes e2e suite", "SpecReports": [` + strings.Join(specs, ",") + `]}]`
}

const (
	prepared   = `{"LeafNodeType": "SynchronizedBeforeSuite", "State": "passed"}`
	unprepared = `{"LeafNodeType": "SynchronizedBeforeSuite", "State": "failed", "Failure": {"Message": "node n3\n is not ready"}}`
	unselected = `{"ContainerHierarchyTexts": ["[sig] Services"], "LeafNodeType": "It", "LeafNodeText": "work", "State": "skipped"}`
	other      = `{"ContainerHierarchyTexts": ["[sig] Services"], "LeafNodeType": "It", "LeafNodeText": "work too", "State": "passed"}`
)

func ended(state, message string) string {
	return `{"ContainerHierarchyTexts": ["[sig] Services"], "LeafNodeType": "It", "LeafNodeText": "work",
		"State": "` + state + `", "Failure": {"Message": "` + message + `"}}`
}

func TestReadReport(t *testing.T) {
	for _, c := range []struct {
		name   string
		report string
		want   Result
	}{
		{"passed", report(prepared, other, ended("passed", "")), Result{Outcome: Passed}},
		{"failed", report(prepared, ended("failed", `no\nanswer`)), Result{Outcome: Failed, Reason: "no answer"}},
		{"skipped by itself", report(prepared, ended("skipped", "needs 3 nodes")), Result{Outcome: Skipped, Reason: "needs 3 nodes"}},
		{"time over before it", report(prepared, unselected, other), Result{Outcome: Failed, Reason: "it was selected, and did not run"}},
		{"too slow", report(prepared, ended("timedout", "A suite timeout occurred")), Result{Outcome: Failed, Reason: "timedout: A suite timeout occurred"}},
		{"not even begun", report(unprepared, unselected), Result{Outcome: Failed, Reason: "SynchronizedBeforeSuite: node n3 is not ready"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := readReport(strings.NewReader(c.report), []string{"[sig] Services work"})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(map[string]Result{"[sig] Services work": c.want}, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestReadReportWithoutTheTest(t *testing.T) {
	for text, want := range map[string]string{
		report(prepared, other): `no test "[sig] Services work"`,
		`[{"SpecReports": [`:    "read the report",
	} {
		_, err := readReport(strings.NewReader(text), []string{"[sig] Services work too", "[sig] Services work"})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %q", text, err, want)
		}
	}
}

func TestTable(t *testing.T) {
	all := []Test{{Name: "[sig-network] Services work"}, {Name: "[sig-network] DNS <works> | [Conformance]"}}
	table := Table(all, []*Run{
		{Proxy: "vmapd nftables", Commit: "abc", Kubernetes: "v1.36.2", Kernel: "6.18", Nodes: 3, Date: "2026-01-02", Results: map[string]Result{
			all[0].Name: {Outcome: Passed, Attempts: 2},
			all[1].Name: {Outcome: Failed, Reason: "a | b", Attempts: 1},
		}},
		{Proxy: "kube-proxy nftables", Results: map[string]Result{
			all[0].Name: {Outcome: Skipped, Reason: "needs 3 nodes", Attempts: 1},
		}},
	})
	for _, want := range []string{
		"| vmapd nftables | 1 | 1 | 0 | 0 | abc | v1.36.2 | 6.18 | 3 | 2026-01-02 |\n",
		"| kube-proxy nftables | 0 | 0 | 1 | 1 |",
		"| Services work | pass, try 2 | skipped: needs 3 nodes |\n",
		`| DNS &lt;works> \| [Conformance] | **FAIL**: a \| b | not run |` + "\n",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("the table lacks %q:\n%s", want, table)
		}
	}
}

func TestARunIsContinued(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run.json")
	run, err := LoadRun(file)
	if err != nil {
		t.Fatal(err)
	}
	run.add("a", Result{Outcome: Passed})
	run.add("b", Result{Outcome: Failed})
	run.add("b", Result{Outcome: Failed, Reason: "again"})
	run.add("d", Result{Outcome: Skipped})
	if err := run.Save(file); err != nil {
		t.Fatal(err)
	}
	run, err = LoadRun(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Result{Outcome: Failed, Reason: "again", Attempts: 2}, run.Results["b"]); diff != "" {
		t.Error(diff)
	}
	all := []Test{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d"}}
	if diff := cmp.Diff([]Test{{Name: "c"}}, run.Missing(all, false)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]Test{{Name: "b"}, {Name: "c"}, {Name: "d"}}, run.Missing(all, true)); diff != "" {
		t.Error(diff)
	}
	run.add("d", Result{Outcome: Passed})
	if diff := cmp.Diff(Result{Outcome: Passed, Attempts: 1}, run.Results["d"]); diff != "" {
		t.Error(diff)
	}
}

func TestBehind(t *testing.T) {
	all := []Test{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	runs := []*Run{
		{Proxy: "vmapd nftables", Results: map[string]Result{"a": {Outcome: Passed}, "b": {Outcome: Failed}, "c": {Outcome: Failed}}},
		{Proxy: "vmapd iptables", Results: map[string]Result{"a": {Outcome: Skipped}, "b": {Outcome: Passed}}},
		{Proxy: "kube-proxy nftables", Results: map[string]Result{"a": {Outcome: Passed}, "b": {Outcome: Passed}, "c": {Outcome: Failed}}},
	}
	want := []string{"vmapd iptables: a", "vmapd nftables: b"}
	if diff := cmp.Diff(want, Behind(all, runs)); diff != "" {
		t.Error(diff)
	}
}
