package image

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/kube"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// contents returns the files of an archive, and what a link leads to as "-> TARGET".
func contents(t *testing.T, archive string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for r := tar.NewReader(strings.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		h.Name = strings.TrimSuffix(h.Name, "/")
		switch h.Typeflag {
		case tar.TypeDir:
			found[h.Name] = "folder"
		case tar.TypeSymlink:
			found[h.Name] = "-> " + h.Linkname
		default:
			found[h.Name] = string(data)
		}
	}
}

// saved returns the files of the archive of an image without packages.
func saved(t *testing.T, i Image) map[string]string {
	t.Helper()
	file, err := i.Save(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return contents(t, testaid.Read(t, file))
}

func write(t *testing.T, name, content string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestAnImageWithoutPackagesHasOnlyItsPrograms(t *testing.T) {
	program := write(t, filepath.Join(t.TempDir(), "vmapd"), "program")
	i := Image{
		Name: "vmapd", Tags: []string{"example.org/vmapd:1"},
		Programs:   map[string]string{"/usr/local/bin/vmapd": program},
		Links:      map[string]string{"/usr/local/bin/kube-proxy": "vmapd"},
		Entrypoint: []string{"/usr/local/bin/vmapd"},
	}
	archive := saved(t, i)
	var manifest []struct {
		Config           string
		RepoTags, Layers []string
	}
	if err := json.Unmarshal([]byte(archive["manifest.json"]), &manifest); err != nil || len(manifest) != 1 {
		t.Fatalf("manifest.json has %s: %v", archive["manifest.json"], err)
	}
	if diff := cmp.Diff([]string{"example.org/vmapd:1"}, manifest[0].RepoTags); diff != "" {
		t.Error(diff)
	}
	var config struct {
		Config struct{ Entrypoint []string }
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	if err := json.Unmarshal([]byte(archive[manifest[0].Config]), &config); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/usr/local/bin/vmapd"}, config.Config.Entrypoint); diff != "" {
		t.Error(diff)
	}
	layer := archive[manifest[0].Layers[0]]
	sum := sha256.Sum256([]byte(layer))
	if diff := cmp.Diff([]string{"sha256:" + hex.EncodeToString(sum[:])}, config.RootFS.DiffIDs); diff != "" {
		t.Error(diff)
	}
	want := map[string]string{
		"usr": "folder", "usr/local": "folder", "usr/local/bin": "folder",
		"usr/local/bin/vmapd": "program", "usr/local/bin/kube-proxy": "-> vmapd",
	}
	if diff := cmp.Diff(want, contents(t, layer)); diff != "" {
		t.Error(diff)
	}
}

func TestFilesTakeThePlaceOfThoseOfPackages(t *testing.T) {
	packages := t.TempDir()
	write(t, packages+"/bin/nc.openbsd", "netcat")
	write(t, packages+"/bin/nc", "package")
	write(t, packages+"/etc/wgetrc", "package")
	write(t, packages+"/usr/sbin/ip", "package")
	write(t, packages+"/bin/busybox", "#!/bin/sh\necho ip nc sleep\n")
	program := write(t, filepath.Join(t.TempDir(), "agnhost"), "program")
	i := Image{
		Programs: map[string]string{"/agnhost": program},
		Links:    map[string]string{"/usr/bin/nc": "nc.openbsd"},
		Texts:    map[string]string{"/etc/wgetrc": "tries = 1\n"},
		BusyBox:  true,
	}
	file := filepath.Join(t.TempDir(), "image.tar")
	if err := i.write(t.Context(), packages, t.TempDir(), file); err != nil {
		t.Fatal(err)
	}
	got := contents(t, contents(t, testaid.Read(t, file))["layer.tar"])
	for name, want := range map[string]string{
		"agnhost":            "program",
		"etc/wgetrc":         "tries = 1\n",
		"bin":                "-> usr/bin",
		"usr/bin/nc":         "-> nc.openbsd",
		"usr/bin/nc.openbsd": "netcat",
		"usr/sbin/ip":        "package",
		"usr/bin/ip":         "",
		"usr/bin/sleep":      "-> busybox",
		"tmp":                "folder",
		"var/run":            "-> /run",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
}

func TestTestsFindTheirImages(t *testing.T) {
	const listed = `registry.k8s.io/e2e-test-images/agnhost:2.63.0
registry.k8s.io/e2e-test-images/busybox:1.37.0-1
registry.k8s.io/pause:3.10.2
registry.k8s.io/e2e-test-images/agnhost:2.55
gcr.io/k8s-authenticated-test/agnhost:2.6
`
	got := map[string][]string{}
	for _, i := range Set("/kube", "/built", listed) {
		got[i.Name] = i.Tags
	}
	want := map[string][]string{
		"vmapd":      {kube.VmapdImage},
		"pause":      {"registry.k8s.io/pause:3.10.2", kube.PauseImage},
		"podserver":  {kube.PodserverImage},
		"coredns":    {kube.CoreDNSImage},
		"kube-proxy": {kube.KubeProxyImage},
		"agnhost":    {"registry.k8s.io/e2e-test-images/agnhost:2.63.0", "registry.k8s.io/e2e-test-images/agnhost:2.55", kube.AgnhostImage},
		"busybox":    {"registry.k8s.io/e2e-test-images/busybox:1.37.0-1"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
