package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestBoot boots machines. The Makefile's target test-ipvs asks for it; it needs QEMU, and
// the first time the kernel is downloaded.
func TestBoot(t *testing.T) {
	if os.Getenv("VMAPD_TEST_BOOT") == "" {
		t.Skip("VMAPD_TEST_BOOT is not set")
	}
	vm := filepath.Join(t.TempDir(), "vm")
	build := exec.Command("go", "build", "-o", vm, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for _, tt := range []struct {
		name           string
		args           []string
		code           int
		stdout, stderr string
	}{
		{"output and exit code", []string{"--packages", "dash", "--", "sh", "-c", "echo out; exit 7"}, 7, "out\n", ""},
		{"a signal", []string{"--packages", "dash", "--", "sh", "-c", "kill -TERM $$"}, 143, "", ""},
		{"a module and what it needs", []string{"--", "modprobe", "ip_vs_wlc"}, 0, "", ""},
		{"a module that is left out", []string{"--without", "ip_vs", "--", "modprobe", "ip_vs_rr"}, 1, "modprobe: ", ""},
		{"a module that is not there", []string{"--", "modprobe", "teleport"}, 1, "modprobe: ", ""},
		{"no such command", []string{"--", "teleport"}, exitFailed, "", "find the command: "},
		{"time limit", []string{"--timeout", "1s", "--", "modprobe", "dummy"}, exitTimeLimit, "", "time limit reached"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			c := exec.Command(vm, append([]string{"--timeout", "2m"}, tt.args...)...)
			c.Stdout, c.Stderr = &stdout, &stderr
			_ = c.Run()
			if got := c.ProcessState.ExitCode(); got != tt.code {
				t.Errorf("exit code %d, want %d; standard error:\n%s", got, tt.code, &stderr)
			}
			if !strings.Contains(stdout.String(), tt.stdout) || !strings.Contains(stderr.String(), tt.stderr) {
				t.Errorf("standard output %q, error %q; want %q, %q", &stdout, &stderr, tt.stdout, tt.stderr)
			}
		})
	}
}
