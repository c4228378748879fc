package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/kube"
	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/life"
)

// A page that lost a block would be noticed by make test-install only, which needs a cluster.
func TestThePageHasWhatInstallRuns(t *testing.T) {
	text, err := os.ReadFile("../../../vmapd/deploy/INSTALL.md")
	if err != nil {
		t.Fatal(err)
	}
	page := life.ParsePage(string(text))
	for _, step := range [][2]string{
		{released, "sha256sum"},
		{released, "skopeo copy"},
		{released, "crane push"},
		{released, "grep -xF"},
		{released, "create secret"},
		{released, "helm install vmapd vmapd-chart.tgz"},
		{released, "kubectl vmapd"},
		{released, "helm push"},
		{imported, "images import"},
		{rendered, "helm template"},
		{rendered, "--take-ownership"},
		{changed, "helm upgrade"},
		{changed, "helm rollback"},
		{removed, "helm uninstall"},
		{removed, "cleanup=everything"},
	} {
		if _, err := page.Find(step[0], step[1]); err != nil {
			t.Error(err)
		}
	}
	i := &installation{Run: &life.Run{Work: t.TempDir()}, page: string(text), digest: "sha256:" + strings.Repeat("1", 64)}
	for file, image := range map[string]string{
		"values-released.yaml": "repository: " + kube.Registry() + "/vmapd\n  digest: " + i.digest,
		"values-imported.yaml": "repository: example.org/vmapd",
	} {
		if err := i.values(file, "more: yes\n"); err != nil {
			t.Error(err)
			continue
		}
		values, err := os.ReadFile(filepath.Join(i.Work, "values.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{image, "apiServer: " + kube.APIServer(), "clusterCIDR: " + kube.PodRanges, "\nmore: yes\n"} {
			if !strings.Contains(string(values), want) {
				t.Errorf("%s, filled in, has no %q:\n%s", file, want, values)
			}
		}
	}
}
