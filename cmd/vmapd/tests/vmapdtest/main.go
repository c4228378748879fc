package vmapdtest

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/cli"
	"github.com/vmapd/vmapd/model/nettest"
)

// Main runs the tests of a package, whose test binary is vmapd when it is called by that name, also as the container of
// the DaemonSet has it. There may be more names.
func Main(m *testing.M, more map[string]func()) {
	// iptables-legacy locks a file that only root may open; root of a user namespace may not.
	if f, err := os.OpenFile("/run/xtables.lock", os.O_RDWR|os.O_CREATE, 0o600); err == nil {
		_ = f.Close()
	} else {
		_ = os.Setenv("XTABLES_LOCKFILE", filepath.Join(os.TempDir(), fmt.Sprintf("vmapd-test-%d.lock", os.Getuid())))
	}
	commands := map[string]func(){
		"vmapd": cli.Main, cli.PluginName: cli.Main, "in-container": inContainer, UnprivilegedName: withoutPrivileges,
	}
	maps.Copy(commands, more)
	if commands[filepath.Base(os.Args[0])] == nil {
		nettest.Prepare()
	}
	testscript.Main(m, commands)
}
