package e2e

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Runner runs tests.
type Runner struct {
	Dir       string // of logs and reports
	Processes int    // how many run at the same time
	Group     int    // number of tests of a process
	Limit     time.Duration
	Budget    time.Duration // after which no test is started
	Again     bool          // runs tests again that failed or were skipped
	Log       *slog.Logger

	// Command prepares e2e.test where the API server can be reached.
	Command func(ctx context.Context, args ...string) *exec.Cmd
}

// File is the file of the run.
func (r *Runner) File() string { return r.Dir + ".json" }

// Run runs tests that have no result yet, and returns how many still have none. Results are saved
// after each group.
func (r *Runner) Run(ctx context.Context, run *Run, all []Test) (left int, err error) {
	if err := os.MkdirAll(r.Dir, 0o755); err != nil {
		return 0, fmt.Errorf("make the folder of logs: %w", err)
	}
	end := time.Now().Add(r.Budget)
	together, alone := groups(run.Missing(all, r.Again), r.Group)
	var lock sync.Mutex // of run
	inTurn := func(limit int, groups [][]string) error {
		workers, ctx := errgroup.WithContext(ctx)
		workers.SetLimit(limit)
		for _, tests := range groups {
			workers.Go(func() error {
				if ctx.Err() != nil || time.Now().After(end) {
					return ctx.Err()
				}
				got, err := r.group(ctx, tests)
				if err != nil {
					return fmt.Errorf("run %s: %w", strings.Join(tests, ", "), err)
				}
				lock.Lock()
				defer lock.Unlock()
				for _, t := range tests {
					run.add(t, got[t])
					r.Log.Info(string(got[t].Outcome), slog.String("test", t), slog.String("reason", got[t].Reason))
				}
				run.Date = time.Now().UTC().Format(time.DateOnly)
				return run.Save(r.File())
			})
		}
		return workers.Wait()
	}
	if err = inTurn(r.Processes, together); err == nil {
		err = inTurn(1, alone)
	}
	return len(run.Missing(all, r.Again)), err
}

// groups deals tests to processes: those that may run beside others, and the rest.
func groups(tests []Test, size int) (together, alone [][]string) {
	var names []string
	for _, t := range tests {
		if t.Alone {
			alone = append(alone, []string{t.Name})
		} else {
			names = append(names, t.Name)
		}
	}
	return slices.Collect(slices.Chunk(names, size)), alone
}

// group runs tests in one process. The error is about this machine, not about the tests.
func (r *Runner) group(ctx context.Context, tests []string) (map[string]Result, error) {
	base := filepath.Join(r.Dir, fileName(tests[0]))
	report := base + ".json"
	log, err := os.Create(base + ".log")
	if err != nil {
		return nil, err
	}
	defer log.Close()
	var focus []string
	for _, t := range tests {
		focus = append(focus, regexp.QuoteMeta(t))
	}
	// When the limit is reached, the tests still clean up and are in the report.
	limit := r.Limit * time.Duration(len(tests))
	cmd := r.Command(ctx,
		"--ginkgo.focus=("+strings.Join(focus, "|")+")$", "--ginkgo.json-report="+report,
		"--ginkgo.timeout="+limit.String(), "--ginkgo.grace-period=1m", "--ginkgo.no-color")
	cmd.Stdout, cmd.Stderr = log, log
	var exit *exec.ExitError
	if err := cmd.Run(); ctx.Err() != nil {
		return nil, ctx.Err()
	} else if err != nil && !errors.As(err, &exit) {
		return nil, err
	}
	f, err := os.Open(report)
	if err != nil {
		return nil, fmt.Errorf("%w; the log is %s", err, log.Name())
	}
	defer f.Close()
	got, err := readReport(f, tests)
	if err == nil {
		err = os.Remove(report) // it has 20 MB
	}
	return got, err
}

// fileName makes a name of a test's files.
func fileName(test string) string {
	test = strings.TrimPrefix(test, "[sig-network] ")
	return strings.Trim(regexp.MustCompile(`[^A-Za-z0-9=]+`).ReplaceAllString(test, "-"), "-")
}
