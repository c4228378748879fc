package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// deb makes a package of one program, one library, one manual and one licence.
func deb(t *testing.T) []byte {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"DEBIAN/control":                "Package: ipset\nVersion: 7-1\nArchitecture: all\nMaintainer: nobody\nDescription: test\n",
		"usr/sbin/ipset":                "text",
		"lib/libipset.so":               "text",
		"usr/share/man/man8/ipset.8.gz": "text", "usr/share/doc/ipset/copyright": "text", "usr/share/doc/ipset/changelog": "text",
	} {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o755), os.Chtimes(file, time.Time{}, time.Unix(1e9, 0))); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("dpkg-deb", "--root-owner-group", "--build", dir, dir+".deb")
	build.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=1000000000")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return []byte(mustRead(t, dir+".deb"))
}

// programs is a folder with the program of examples. Any does: it is this command, as a test's own program is linked to C's library
// where there is a compiler for C.
var programs string

func TestMain(m *testing.M) { os.Exit(withPrograms(m)) }

func withPrograms(m *testing.M) int {
	var err error
	if programs, err = os.MkdirTemp("", "release-programs-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(programs) }()
	build := exec.Command("go", "build", "-o", filepath.Join(programs, "vmapd-"+runtime.GOARCH), ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// example is a release for this processor alone.
func example(t *testing.T, served, locked []byte) release {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path != "/archive/pool/ipset_7-1_amd64.deb" {
			http.NotFound(w, q)
			return
		}
		_, _ = w.Write(served)
	}))
	t.Cleanup(server.Close)
	l, err := parseLock(fmt.Sprintf("# comment\ndate 2026-03-01\nmirror %[1]s/gone\nmirror %[1]s/archive\n%[2]s ipset 7-1 %[3]s pool/ipset_7-1_amd64.deb\n",
		server.URL, runtime.GOARCH, sumOf(locked)))
	if err != nil {
		t.Fatal(err)
	}
	return release{out: filepath.Join(t.TempDir(), "release"), programs: programs, deploy: "../../vmapd/deploy", processors: []string{runtime.GOARCH}, lock: l, cache: t.TempDir()}
}

// written is such a release, written to its folder.
func written(t *testing.T) release {
	t.Helper()
	pkg := deb(t)
	r := example(t, pkg, pkg)
	if err := r.write(t.Context(), io.Discard); err != nil {
		t.Fatal(err)
	}
	return r
}

func mustRead(t *testing.T, path ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// images returns the images of a layout by processor. They are validated: digests, sizes, contents of layers.
func images(t *testing.T, path string) map[string]v1.Image {
	t.Helper()
	outer, err := layout.ImageIndexFromPath(path)
	if err != nil {
		t.Fatal(err)
	}
	m, err := outer.IndexManifest()
	if err != nil || len(m.Manifests) != 1 {
		t.Fatalf("index.json: %+v, %v", m, err)
	}
	index, err := outer.ImageIndex(m.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	m, err = index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]v1.Image{}
	for _, d := range m.Manifests {
		i, err := index.Image(d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		found[d.Platform.Architecture] = i
	}
	return found
}

// names returns what the files of an image are: their type, and links' targets.
func names(t *testing.T, i v1.Image) map[string]string {
	t.Helper()
	found := map[string]string{}
	all := mutate.Extract(i)
	defer all.Close()
	for r := tar.NewReader(all); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uname != "" || h.Uid != 0 {
			t.Errorf("%s belongs to %d, %s", h.Name, h.Uid, h.Uname)
		}
		found[strings.TrimSuffix(h.Name, "/")] = string(h.Typeflag) + h.Linkname
	}
}

func TestAReleaseIsReproducible(t *testing.T) {
	var sums []string
	for range 2 {
		r := written(t)
		sums = append(sums, mustRead(t, r.out, sumsName))
	}
	if sums[0] != sums[1] {
		t.Errorf("two releases differ:\n%s\n%s", sums[0], sums[1])
	}
	if n := strings.Count(sums[0], "\n"); n < 10 || !strings.Contains(sums[0], "  vmapd/index.json\n") || !strings.Contains(sums[0], "  "+chartName+"\n") {
		t.Errorf("%s has %d lines:\n%s", sumsName, n, sums[0])
	}
}

func TestImages(t *testing.T) {
	r := written(t)
	i := images(t, filepath.Join(r.out, imageName))[runtime.GOARCH]
	if i == nil {
		t.Fatalf("there is no image for %s", runtime.GOARCH)
	}
	files := names(t, i)
	for file, want := range map[string]string{
		"usr/local/bin/vmapd": "0", "usr/local/bin/kube-proxy": "2vmapd", "etc/passwd": "0", "usr/sbin/ipset": "0", "usr/lib/libipset.so": "0", "lib": "2usr/lib", "usr/sbin/iptables-restore": "2xtables-nft-multi",
		"usr/share/doc/ipset/copyright": "0", "usr/share/doc/ipset/changelog": "", "usr/share/man/man8/ipset.8.gz": "", "tmp": "5",
	} {
		if files[file] != want {
			t.Errorf("%s is %q, want %q", file, files[file], want)
		}
	}
	c, err := i.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if c.Architecture != runtime.GOARCH || c.OS != "linux" || c.Config.Entrypoint[0] != "/usr/local/bin/vmapd" || c.Config.Labels["org.opencontainers.image.licenses"] != "Apache-2.0" {
		t.Errorf("%+v", c)
	}
	sbom := mustRead(t, r.out, imageName+"-"+runtime.GOARCH+".spdx.json")
	for _, part := range []string{"pkg:golang/github.com/google/go-containerregistry@", "pkg:golang/stdlib@", "pkg:deb/debian/ipset@"} {
		if !strings.Contains(sbom, `"`+part) {
			t.Errorf("the SBOM lacks %s", part)
		}
	}
}

// The chart and the manifests are those of the source. The chart alone has a version, which is the image's tag.
func TestAReleaseHasWhatAClusterNeeds(t *testing.T) {
	r := written(t)
	p, err := readProgram(filepath.Join(r.programs, "vmapd-"+runtime.GOARCH), runtime.GOARCH)
	if err != nil {
		t.Fatal(err)
	}
	p.version = "v1.2.3-rc.1"
	other := r
	other.out = t.TempDir()
	if err := other.writeDeploy(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(strings.NewReader(mustRead(t, other.out, chartName)))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for chart := tar.NewReader(z); ; {
		h, err := chart.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(chart)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = string(text)
	}
	for name, want := range map[string]string{
		"vmapd/values.yaml":              mustRead(t, r.deploy, "chart/values.yaml"),
		"vmapd/templates/daemonset.yaml": mustRead(t, r.deploy, "chart/templates/daemonset.yaml"),
		"vmapd/files/alerts.yaml":        mustRead(t, r.deploy, "monitoring/alerts.yaml"), // a link in the source
	} {
		if files[name] != want {
			t.Errorf("the chart's %s is another file than in the source:\n%.200s", name, files[name])
		}
	}
	for _, line := range []string{"name: vmapd\n", "\nversion: 1.2.3-rc.1\n", "\nappVersion: v1.2.3-rc.1\n"} {
		if !strings.Contains(files["vmapd/Chart.yaml"], line) {
			t.Errorf("Chart.yaml lacks %q:\n%s", line, files["vmapd/Chart.yaml"])
		}
	}
	for name, there := range map[string]bool{"vmapd.yaml": true, "legacy.yaml": true, "monitoring/alerts.yaml": true, "from-kube-proxy.sed": true, "try-one-node.sh": true, "chart/Chart.yaml": false} {
		if _, err := os.Stat(filepath.Join(r.out, deployName, name)); (err == nil) != there {
			t.Errorf("%s is in the release: %v, want %v", name, err == nil, there)
		}
	}
}

func TestOtherBytesThanLockedAreRefused(t *testing.T) {
	r := example(t, []byte("something else"), deb(t))
	if err := r.write(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), "another checksum than packages.lock says") {
		t.Errorf("want an error about the checksum, got %v", err)
	}
}
