// Package cli: The commands: their texts, and their answers of a daemon and a cluster.
package cli

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/cli"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

func TestMain(m *testing.M) { vmapdtest.Main(m, nil) }

// Ten megabytes of garbage must cause one line of output, and nothing else.
func TestGarbageCostsOneLine(t *testing.T) {
	const size = 10_000_000
	noise := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	for name, garbage := range map[string][]byte{
		"noise": noise, "zeros": make([]byte, size), "brackets": bytes.Repeat([]byte("x: [1, {y: \n"), size/12),
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "garbage.yaml")
			if err := os.WriteFile(path, garbage, 0o600); err != nil {
				t.Fatal(err)
			}
			var stdout, stderr bytes.Buffer
			code := cli.Run(t.Context(), []string{"render", "-f", path, "-f", vmapdtest.Demo(t)}, nil, &stdout, &stderr)
			if code != 1 || strings.Count(stderr.String(), "\n") != 1 || !strings.HasPrefix(stderr.String(), "vmapd: "+path+":1: ") {
				t.Errorf("exit code %d, and %.500q; want 1, and one line about the file", code, &stderr)
			}
			if !strings.Contains(stdout.String(), `comment "default/web:tcp" : goto endpoints-3-to-4`) {
				t.Errorf("the good files were not rendered:\n%.500s", &stdout)
			}
		})
	}
}

func TestScript(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: vmapdtest.Testdata(t) + "/script", RequireExplicitExec: true, RequireUniqueNames: true, UpdateScripts: *testaid.Update,
		Setup: func(e *testscript.Env) error {
			e.Setenv("TESTDATA", vmapdtest.Testdata(t))
			vmapd, err := exec.LookPath("vmapd")
			if err != nil {
				return err
			}
			e.Setenv("VMAPD", filepath.Dir(vmapd)) // a folder with nothing else
			return nil
		},
	})
}
