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
	"strings"
	"sync"
	"time"
)

// Runner runs tests.
type Runner struct {
	Program   string   // e2e.test
	Flags     []string // that say which cluster
	Dir       string   // of logs and reports
	File      string   // of the run
	Processes int      // how many tests run at the same time
	Limit     time.Duration
	Budget    time.Duration // after which no test is started
	Again     bool          // runs failed tests again
	Log       *slog.Logger

	// Command prepares a program where the API server can be reached.
	Command func(ctx context.Context, args ...string) *exec.Cmd
}

// Run runs tests that have no result yet, and returns how many still have none. Results are saved
// one by one.
func (r *Runner) Run(ctx context.Context, run *Run, all []Test) (left int, err error) {
	if err := os.MkdirAll(r.Dir, 0o755); err != nil {
		return 0, fmt.Errorf("make the folder of logs: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	end := time.Now().Add(r.Budget)
	var together, alone []Test
	for _, t := range run.missing(all, r.Again) {
		if t.Alone {
			alone = append(alone, t)
		} else {
			together = append(together, t)
		}
	}
	todo := len(together) + len(alone)
	var (
		lock sync.Mutex // of run, todo and err
		one  = func(t Test) {
			got, testErr := r.one(ctx, t.Name)
			lock.Lock()
			defer lock.Unlock()
			if testErr != nil {
				err = errors.Join(err, fmt.Errorf("run test %q: %w", t.Name, testErr))
				cancel()
				return
			}
			run.add(t.Name, got)
			run.Date = time.Now().UTC().Format(time.DateOnly)
			todo--
			r.Log.Info(string(got.Outcome), "test", t.Name, "seconds", got.Seconds, "reason", got.Reason, "left", todo)
			if saveErr := run.Save(r.File); saveErr != nil {
				err = errors.Join(err, saveErr)
				cancel()
			}
		}
		goOn = func() bool { return ctx.Err() == nil && time.Now().Before(end) }
	)
	queue := make(chan Test)
	var workers sync.WaitGroup
	for range r.Processes {
		workers.Go(func() {
			for t := range queue {
				one(t)
			}
		})
	}
	for _, t := range together {
		select {
		case queue <- t:
		case <-time.After(time.Until(end)):
		case <-ctx.Done():
		}
		if !goOn() {
			break
		}
	}
	close(queue)
	workers.Wait()
	for _, t := range alone {
		if goOn() {
			one(t)
		}
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	return todo, err
}

// one runs a test. The error is about this machine, not about the test.
func (r *Runner) one(ctx context.Context, test string) (Result, error) {
	base := filepath.Join(r.Dir, fileName(test))
	report := base + ".json"
	log, err := os.Create(base + ".log")
	if err != nil {
		return Result{}, err
	}
	defer log.Close()
	// Ginkgo's own limit comes first: with it, the test still cleans up and is in the report.
	const cleanUp = time.Minute
	limited, cancel := context.WithTimeout(ctx, r.Limit+2*cleanUp)
	defer cancel()
	start := time.Now()
	cmd := r.Command(limited, append([]string{
		r.Program,
		"--ginkgo.focus=" + regexp.QuoteMeta(test) + "$", "--ginkgo.json-report=" + report,
		"--ginkgo.timeout=" + r.Limit.String(), "--ginkgo.grace-period=" + cleanUp.String(),
		"--ginkgo.no-color",
	}, r.Flags...)...)
	cmd.Stdout, cmd.Stderr = log, log
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return Result{}, context.Cause(ctx)
	case limited.Err() != nil:
		return Result{Outcome: Failed, Seconds: time.Since(start).Seconds(), Reason: fmt.Sprintf("killed after %v", r.Limit+2*cleanUp)}, nil
	case err != nil && !errors.As(err, &exit):
		return Result{}, err
	}
	f, err := os.Open(report)
	if err != nil {
		return Result{}, fmt.Errorf("%w; the log is %s", err, log.Name())
	}
	defer f.Close()
	got, err := readReport(f, test)
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
