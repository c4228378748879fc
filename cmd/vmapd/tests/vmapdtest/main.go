package vmapdtest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/cli"
	"github.com/vmapd/vmapd/model/nettest"
)

// Main runs the tests of a package. Its test binary is vmapd when it is called by that name, also as the container of
// the DaemonSet has it.
func Main(m *testing.M) {
	commands := map[string]func(){
		"vmapd": cli.Main, cli.PluginName: cli.Main, "in-container": inContainer, UnprivilegedName: withoutPrivileges,
	}
	if commands[filepath.Base(os.Args[0])] == nil {
		nettest.Prepare()
	}
	testscript.Main(m, commands)
}
