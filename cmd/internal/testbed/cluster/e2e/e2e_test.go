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
