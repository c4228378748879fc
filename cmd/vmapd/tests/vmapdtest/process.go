// Package vmapdtest is for tests that run vmapd in a lab: the program and its container as processes, a cluster with an
// API server, a backend in the test's own process, and what these have on a node. The test binary is vmapd, see Main.
package vmapdtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/model/modeltest/testlog"
)

// Testdata is the repository's folder of that name.
func Testdata(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	for ; err == nil && dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "testdata/scenario")); err == nil {
			return filepath.Join(dir, "testdata")
		}
	}
	t.Fatalf("no folder testdata above this one: %v", err)
	return ""
}

// Demo is the folder with the manifests of the demo.
func Demo(t testing.TB) string {
	t.Helper()
	return filepath.Join(Testdata(t), "demo/before")
}

// EditDemo writes the manifests of the demo into a folder, with another text.
func EditDemo(t *testing.T, dir string, change func(string) string) {
	t.Helper()
	for _, file := range []string{"services.yaml", "endpoints.yaml"} {
		text := testaid.Read(t, filepath.Join(Demo(t), file))
		ReplaceFile(t, filepath.Join(dir, file), change(text))
	}
}

// Folder is that of the program, cmd/vmapd.
func Folder(t testing.TB) string {
	t.Helper()
	return filepath.Join(filepath.Dir(Testdata(t)), "cmd/vmapd")
}

// Program is a path of this program by which it is vmapd.
func Program(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "vmapd")
	self, err := os.Executable()
	if err == nil {
		err = os.Symlink(self, path)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Process is vmapd, running in a namespace.
type Process struct {
	Cmd *lab.Cmd
	Log *testlog.Log
}

// Start starts vmapd in a namespace, with these arguments. A daemon without --socket has none: daemons of other
// packages' tests would have the same.
func Start(t *testing.T, ns *lab.Namespace, args ...string) *Process {
	t.Helper()
	socket := func(arg string) bool {
		return strings.HasPrefix(arg, "--socket") || strings.HasPrefix(arg, "--vmapd-config")
	}
	if len(args) > 0 && strings.HasPrefix(args[0], "-") && !slices.ContainsFunc(args, socket) {
		args = append(slices.Clone(args), "--socket=")
	}
	return Launch(t, ns, "/proc/self/exe", append([]string{"vmapd"}, args...)...)
}

// Launch starts a program that becomes vmapd. Args[0] is its name. It ends with the test, before its world does.
func Launch(t *testing.T, ns *lab.Namespace, path string, args ...string) *Process {
	t.Helper()
	p := &Process{Cmd: ns.Command(context.WithoutCancel(t.Context()), path), Log: &testlog.Log{}}
	p.Cmd.Args, p.Cmd.Stderr = args, p.Log
	if err := p.Cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.Cmd.ProcessState == nil {
			Stop(t, p)
		}
		if strings.Contains(p.Log.String(), "DATA RACE") {
			t.Error("a data race in vmapd")
		}
		if t.Failed() {
			t.Logf("the log of vmapd:\n%s", p.Log)
		}
	})
	return p
}

// StartDemo starts vmapd with the manifests of the demo, and waits until it is ready.
func StartDemo(t *testing.T, ns *lab.Namespace, args ...string) *Process {
	t.Helper()
	return StartReady(t, ns, append([]string{"--from", Demo(t), "--hostname-override", lab.NodeName}, args...)...)
}

// StartReady starts vmapd, and waits until it is ready.
func StartReady(t *testing.T, ns *lab.Namespace, args ...string) *Process {
	t.Helper()
	p := Start(t, ns, args...)
	p.WaitFor(t, "msg=ready")
	return p
}

// Cleanup runs vmapd cleanup, which must succeed.
func Cleanup(t *testing.T, ns *lab.Namespace, args ...string) {
	t.Helper()
	if p := Start(t, ns, append([]string{"cleanup"}, args...)...); p.Exit(t) != 0 {
		t.Fatalf("vmapd cleanup fails:\n%s", p.Log)
	}
}

// WaitFor waits until the log has a text.
func (p *Process) WaitFor(t *testing.T, text string) {
	t.Helper()
	Eventually(t, func() string {
		if log := p.Log.String(); !strings.Contains(log, text) {
			return fmt.Sprintf("the log does not say %q:\n%s", text, log)
		}
		return ""
	})
}

// Exit waits for a process that ends by itself, and returns its exit code.
func (p *Process) Exit(t *testing.T) int {
	t.Helper()
	timer := time.AfterFunc(time.Minute, func() { _ = p.Cmd.Process.Kill() })
	defer timer.Stop()
	err := p.Cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatal(err)
	} else if ok {
		return exit.ExitCode()
	}
	return 0
}

// Kill ends a process at once.
func (p *Process) Kill(t *testing.T) {
	t.Helper()
	if err := p.Cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.Cmd.Wait()
}

// Pid is the process ID.
func (p *Process) Pid() string { return strconv.Itoa(p.Cmd.Process.Pid) }

// MustStay fails if a process has ended, or said that it starts again.
func (p *Process) MustStay(t *testing.T) {
	t.Helper()
	if n := strings.Count(p.Log.String(), "msg=started"); n != 1 || strings.Contains(p.Log.String(), "msg=stopped") {
		t.Errorf("the process did not simply go on: it started %d times", n)
	}
}

// Stop ends a daemon as kubelet does.
func Stop(t *testing.T, p *Process) {
	t.Helper()
	_ = p.Cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	if code := p.Exit(t); code != 0 {
		t.Errorf("asked to end, vmapd does so with exit code %d", code)
	}
}

// Feed runs a program in a namespace with a text on its standard input, and returns what it
// prints.
func Feed(t *testing.T, ns *lab.Namespace, text, program string, args ...string) string {
	t.Helper()
	c := ns.Command(t.Context(), program, args...)
	c.Stdin = strings.NewReader(text)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// ListRuleset is what nft lists, without the owners of tables.
func ListRuleset(t *testing.T, ns *lab.Namespace, args ...string) string {
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

// ReplaceFile replaces a file in one step.
func ReplaceFile(t *testing.T, path, text string) {
	t.Helper()
	testaid.Write(t, path+".new", text)
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// Eventually waits until problem returns "", for a minute at most.
func Eventually(t *testing.T, problem func() string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		p := problem()
		if p == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(p)
		}
	}
}

// WaitUntil waits for something that the daemon does, for a minute at most.
func WaitUntil(t *testing.T, what string, holds func() bool) {
	t.Helper()
	testaid.WaitUntil(t, what, holds)
}

// UnprivilegedName is the name by which a test binary drops all privileges, and becomes the program of the arguments.
const UnprivilegedName = "without-privileges"
