// Package cli: The commands: their texts, and their answers of a daemon and a cluster.
package cli

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

func TestMain(m *testing.M) { vmapdtest.Main(m) }

func TestScript(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: vmapdtest.Testdata(t) + "/script", RequireExplicitExec: true, RequireUniqueNames: true,
		UpdateScripts: *testaid.Update,
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
