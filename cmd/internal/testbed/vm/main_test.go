package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAProgramHasItsOwnLibraries(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"usr/lib/there/ld-linux.so.2": "#!/bin/sh\necho linker $*\n", "usr/sbin/nft": "", "usr/bin/dash": "",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	o := options{here: "nft", command: []string{"sh", "-c", "nft list ruleset; exit 7"}, timeout: time.Minute}
	var stdout bytes.Buffer
	code, err := o.runHere(t.Context(), root, &stdout, io.Discard)
	if code != 7 || err != nil {
		t.Errorf("exit code %d, error %v; want 7, none", code, err)
	}
	want := strings.ReplaceAll("linker --library-path ROOT/usr/lib/there:ROOT/lib/there ROOT/usr/sbin/nft list ruleset\n", "ROOT", root)
	if diff := cmp.Diff(want, stdout.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	o.here = "ipset"
	if _, err := o.runHere(t.Context(), root, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "find ipset") {
		t.Errorf("got error %v, want one about ipset", err)
	}
}

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
