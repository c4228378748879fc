package charttest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// kustomize returns the objects of a folder, as "kubectl kustomize" makes them.
func kustomize(t *testing.T, dir string) objects {
	t.Helper()
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := made.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, string(text))
}

func TestTheBaseHasTheObjectsOfTheManifest(t *testing.T) {
	compare(t, manifest(t, "vmapd.yaml"), kustomize(t, deploy))
}

// The overlay of the page fills in all that must be, and adds the component.
func TestTheOverlayOfThePage(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	there, err := filepath.Abs(deploy)
	if err != nil {
		t.Fatal(err)
	}
	base, err := filepath.Rel(dir, there)
	if err != nil {
		t.Fatal(err)
	}
	overlay := strings.ReplaceAll(block(t, "install.md", "kustomization.yaml"), "BASE", base)
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(overlay), 0o600); err != nil {
		t.Fatal(err)
	}
	got := kustomize(t, dir)

	// The chart makes the same of the same values.
	want, _, err := render(t, `
image: {repository: registry.example/vmapd, tag: v0.1.0-dev}
apiServer: https://control-plane.example:6443
config: {clusterCIDR: 10.42.0.0/16, metricsBindAddress: "0.0.0.0:10249"}
podMonitor: {enabled: true}
prometheusRules: {enabled: true}
dashboard: {enabled: true}
`)
	if err != nil {
		t.Fatal(err)
	}
	compare(t, want, got)
}
