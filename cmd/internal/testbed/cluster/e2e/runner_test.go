package e2e

import (
	"context"
	"log/slog"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// newTestRunner returns a runner whose program is a shell with a script, which knows the name of
// the report as REPORT; and the selections of tests it was started with so far.
func newTestRunner(t *testing.T, script string) (r *Runner, started func() []string) {
	t.Helper()
	var (
		lock sync.Mutex
		all  []string
	)
	dir := t.TempDir()
	r = &Runner{
		Dir:       filepath.Join(dir, "logs"),
		Processes: 2, Group: 2, Limit: time.Minute, Budget: time.Hour, Log: slog.New(slog.DiscardHandler),
		Command: func(ctx context.Context, args ...string) *exec.Cmd {
			cmd := exec.CommandContext(ctx, "sh", "-c", script)
			for _, a := range args {
				if focus, ok := strings.CutPrefix(a, "--ginkgo.focus="); ok {
					lock.Lock()
					all = append(all, focus)
					lock.Unlock()
				}
				if report, ok := strings.CutPrefix(a, "--ginkgo.json-report="); ok {
					cmd.Env = append(cmd.Environ(), "REPORT="+report)
				}
			}
			return cmd
		},
	}
	return r, func() []string {
		lock.Lock()
		defer lock.Unlock()
		return slices.Sorted(slices.Values(all))
	}
}

const reporting = `cat >"$REPORT" <<'END'
[{"SpecReports": [
 {"LeafNodeType": "It", "LeafNodeText": "a", "State": "passed"},
 {"LeafNodeType": "It", "LeafNodeText": "b", "State": "skipped", "Failure": {"Message": "needs a cloud"}},
 {"LeafNodeType": "It", "LeafNodeText": "c", "State": "failed", "Failure": {"Message": "no answer"}},
 {"LeafNodeType": "It", "LeafNodeText": "d", "State": "passed"}]}]
END
exit 1`

func TestRunner(t *testing.T) {
	r, started := newTestRunner(t, reporting)
	run, err := LoadRun(r.File())
	if err != nil {
		t.Fatal(err)
	}
	all := []Test{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d", Alone: true}}
	left, err := r.Run(t.Context(), run, all)
	if err != nil || left != 0 {
		t.Fatalf("%d tests are left, and error %v; want none", left, err)
	}
	if diff := cmp.Diff([]string{"(a|b)$", "(c)$", "(d)$"}, started()); diff != "" {
		t.Error(diff)
	}
	saved, err := LoadRun(r.File())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]Result{
		"a": {Outcome: Passed, Attempts: 1},
		"b": {Outcome: Skipped, Reason: "needs a cloud", Attempts: 1},
		"c": {Outcome: Failed, Reason: "no answer", Attempts: 1},
		"d": {Outcome: Passed, Attempts: 1},
	}
	if diff := cmp.Diff(want, saved.Results); diff != "" {
		t.Error(diff)
	}
}
