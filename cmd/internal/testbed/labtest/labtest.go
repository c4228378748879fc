// Package labtest is for tests in a small world.
package labtest

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/model/nettest"
)

// New returns a world with three pods, which ends with the test. Where there can be none, the test is skipped.
func New(t *testing.T) *lab.World {
	t.Helper()
	return With(t, lab.Config{Pods: 3, Ports: []uint16{8080}})
}

// With returns such a world with other pods.
func With(t *testing.T, config lab.Config) *lab.World {
	t.Helper()
	nettest.Need(t)
	w, err := lab.New(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// Vmapd builds vmapd, and returns the program's path.
func Vmapd(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "vmapd")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, "github.com/vmapd/vmapd/cmd/vmapd")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build vmapd: %v\n%s", err, out)
	}
	return path
}
