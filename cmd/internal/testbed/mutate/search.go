package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// searchFor is a test that may find a fault.
type searchFor struct {
	name    string
	pkg     string // its folder
	test    string
	args    []string
	folders []string // of the code that it runs
}

var searches = []searchFor{
	{
		"Simulation", "cmd/internal/testbed/simulate", "TestSimulate",
		[]string{"-seed=1", "-steps=" + strconv.Itoa(math.MaxInt), "-shrink=false"},
		[]string{"nft", "model", "sync"},
	},
	{"Small worlds, nftables", "nft/batch", "TestSmallWorlds", nil, []string{"nft", "model"}},
	{"Small worlds, iptables", "legacy/iptables", "TestSmallWorlds", nil, []string{"legacy/iptables", "model"}},
}

// reaches reports whether the test runs code of a file. The small worlds have no kernel.
func (s searchFor) reaches(file string) bool {
	if strings.HasPrefix(file, "nft/kernel/") && s.pkg == "nft/batch" {
		return false
	}
	return slices.ContainsFunc(s.folders, func(dir string) bool { return strings.HasPrefix(file, dir+"/") })
}

// result is how a search ended.
type result struct {
	found bool
	after time.Duration // of the processor, which other programs do not lengthen
	where string        // the place where it was found, such as a seed; "": unknown
}

func (r result) String() string {
	if !r.found {
		return fmt.Sprintf("no, %.0f s", r.after.Seconds())
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f s, %s", r.after.Seconds(), r.where), ", ")
}

// search compiles the test with an overlay, and runs it.
func (s searchFor) search(ctx context.Context, overlay, dir string, limit time.Duration) (result, error) {
	program := filepath.Join(dir, "search.test")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-ldflags=-s -w", "-overlay", overlay, "-o", program, "./"+s.pkg)
	if out, err := build.CombinedOutput(); err != nil {
		return result{}, fmt.Errorf("go test -c ./%s: %w\n%s", s.pkg, err, out)
	}
	test := exec.CommandContext(ctx, program, append([]string{"-test.failfast", "-test.timeout=0", "-test.run=^" + s.test + "$"}, s.args...)...)
	test.Dir = s.pkg
	var out bytes.Buffer
	test.Stdout, test.Stderr = &out, &out
	if err := test.Start(); err != nil {
		return result{}, err
	}
	seconds := uint64(limit.Seconds())
	limitErr := unix.Prlimit(test.Process.Pid, unix.RLIMIT_CPU, &unix.Rlimit{Cur: seconds, Max: seconds}, nil)
	err := test.Wait()
	r := result{after: test.ProcessState.UserTime() + test.ProcessState.SystemTime()}
	status, _ := test.ProcessState.Sys().(syscall.WaitStatus)
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return r, ctx.Err()
	case limitErr != nil:
		return r, fmt.Errorf("limit the processor time: %w", limitErr)
	case status.Signal() == unix.SIGKILL:
		return r, nil // setrlimit(2): so ends who is over the hard limit
	case err != nil && !errors.As(err, &exit):
		return r, err
	}
	r.found = err != nil
	r.where = where(out.String())
	return r, nil
}

// seeds is how the simulation begins a failure.
var seeds = regexp.MustCompile(`(?m)(seed \d+, step \d+):`)

// where returns the place in the output of a test that failed.
func where(out string) string {
	if m := seeds.FindStringSubmatch(out); m != nil {
		return m[1]
	}
	panicked := ""
	if strings.Contains(out, "panic: ") {
		panicked = "panic"
	}
	return cmp.Or(panicked, "")
}
