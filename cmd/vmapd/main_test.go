package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/vmapd/vmapd/cmd/internal/lab"
)

// inLab runs the tests as root, of a user namespace if need be.
type inLab struct{ *testing.M }

func (m inLab) Run() int { return lab.RunTests(m.M.Run) }

// TestMain makes this test binary be vmapd when it is called by that name.
func TestMain(m *testing.M) {
	testscript.Main(inLab{m}, map[string]func(){"vmapd": main})
}

func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "../../testdata/script", RequireExplicitExec: true, RequireUniqueNames: true, UpdateScripts: *update,
		Setup: func(e *testscript.Env) error {
			e.Setenv("TESTDATA", testdata(t))
			return nil
		},
	})
}
