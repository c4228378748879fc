package takeover

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/labtest"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/model"
)

// The rules of a kube-proxy that runs go only when somebody wants that: by an answer at a terminal, or by --yes.
func TestCleanupAsksWhileKubeProxyRuns(t *testing.T) {
	t.Parallel()
	w := labtest.New(t)
	program, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	kubeProxy := filepath.Join(t.TempDir(), "kube-proxy")
	if err := os.Symlink(program, kubeProxy); err != nil { // whose name the process has
		t.Fatal(err)
	}
	running := &exec.Cmd{Path: kubeProxy, Args: []string{"sleep", "600"}}
	if err := w.Node.Do(running.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = running.Process.Kill(); _ = running.Wait() })
	kubeProxyLike(t, w.Node, "nftables", model.Families[:]...)
	there := func() bool {
		return strings.Contains(vmapdtest.Feed(t, w.Node, "", "nft", "list", "tables"), "kube-proxy")
	}
	refused := vmapdtest.Start(t, w.Node, "cleanup")
	if code := refused.Exit(t); code != 1 || !there() || !strings.Contains(refused.Log.String(), "--keep-kube-proxy") {
		t.Errorf("without a terminal: exit code %d, kube-proxy's tables are there: %t\n%s", code, there(), refused.Log)
	}
	vmapdtest.Cleanup(t, w.Node, "--yes")
	if there() {
		t.Error("with --yes, kube-proxy's tables stay")
	}
}
