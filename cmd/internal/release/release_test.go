// Package release has the script that makes a release, and its tests.
package release

import (
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/model/nettest"
)

// make -C cmd/internal/testbed test-images sets it.
var built = flag.String("release", "", "folder of a release, whose image is tried")

func run(t *testing.T, env []string, name string, args ...string) (string, error) {
	t.Helper()
	c := exec.CommandContext(t.Context(), name, args...)
	c.Env = append(os.Environ(), env...)
	out, err := c.CombinedOutput()
	return string(out), err
}

func must(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	out, err := run(t, env, name, args...)
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	return out
}

// deb makes a package of one program, one library, one manual and one licence.
func deb(t *testing.T) []byte {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"DEBIAN/control":  "Package: ipset\nVersion: 7-1\nArchitecture: all\nMaintainer: nobody\nDescription: test\n",
		"usr/sbin/ipset":  "text",
		"lib/libipset.so": "text", "usr/share/man/man8/ipset.8.gz": "text",
		"usr/share/doc/ipset/copyright": "text", "usr/share/doc/ipset/changelog": "text",
	} {
		file := filepath.Join(dir, name)
		err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o755))
		if err := errors.Join(err, os.Chtimes(file, time.Time{}, time.Unix(1e9, 0))); err != nil {
			t.Fatal(err)
		}
	}
	must(t, []string{"SOURCE_DATE_EPOCH=1000000000"}, "dpkg-deb", "--root-owner-group", "--build", dir, dir+".deb")
	return []byte(testaid.Read(t, dir+".deb"))
}

// release makes one for this processor alone, of any program, with a package that a mirror serves.
func release(t *testing.T, served, locked []byte) (out, log string, err error) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path != "/archive/pool/ipset_7-1_all.deb" {
			http.NotFound(w, q)
			return
		}
		_, _ = w.Write(served)
	}))
	t.Cleanup(server.Close)
	dir := t.TempDir()
	const lock = "# comment\ndate 2026-03-01\nmirror %[1]s/gone\nmirror %[1]s/archive\n" +
		"%[2]s ipset 7-1 %[3]x pool/ipset_7-1_all.deb\n"
	text := fmt.Sprintf(lock, server.URL, runtime.GOARCH, sha256.Sum256(locked))
	testaid.Write(t, filepath.Join(dir, "lock"), text)
	program := filepath.Join(dir, "vmapd-"+runtime.GOARCH)
	must(t, []string{"CGO_ENABLED=0"}, "go", "build", "-o", program, "../testbed/cluster/pause")
	out = filepath.Join(dir, "out")
	env := []string{"LOCK=" + dir + "/lock", "XDG_CACHE_HOME=" + dir}
	log, err = run(t, env, "./release.sh", "make", dir, out, runtime.GOARCH)
	return out, log, err
}

func TestARelease(t *testing.T) {
	for _, program := range []string{"jq", "curl", "dpkg-deb"} {
		if _, err := exec.LookPath(program); err != nil {
			nettest.Missing(t, err)
		}
	}
	pkg := deb(t)
	var sums [2]string
	var out string
	for i := range sums {
		var log string
		var err error
		if out, log, err = release(t, pkg, pkg); err != nil {
			t.Fatalf("%v\n%s", err, log)
		}
		sums[i] = testaid.Read(t, filepath.Join(out, "SHA256SUMS"))
	}
	if sums[0] != sums[1] {
		t.Errorf("two releases differ:\n%s\n%s", sums[0], sums[1])
	}
	image := filepath.Join(t.TempDir(), "image")
	must(t, nil, "./release.sh", "unpack", filepath.Join(out, "vmapd"), runtime.GOARCH, image)
	listed := must(t, nil, "find", filepath.Join(image, "root"), "-printf", "%P %y%l\n")
	for _, want := range []string{
		"usr/local/bin/vmapd f", "usr/local/bin/kube-proxy lvmapd", "etc/passwd f", "usr/sbin/ipset f", "tmp d",
		"usr/lib/libipset.so f", "lib lusr/lib", "usr/sbin/iptables-restore lxtables-nft-multi",
		"usr/share/doc/ipset/copyright f",
	} {
		if !strings.Contains(listed, "\n"+want+"\n") {
			t.Errorf("the image lacks %s; it has\n%s", want, listed)
		}
	}
	for _, not := range []string{"changelog", "ipset.8.gz"} {
		if strings.Contains(listed, not) {
			t.Errorf("the image has %s", not)
		}
	}
	bill := testaid.Read(t, filepath.Join(out, "vmapd-"+runtime.GOARCH+".spdx.json"))
	for _, part := range []string{
		"pkg:golang/github.com/vmapd/vmapd@", "pkg:golang/stdlib@", "pkg:deb/debian/ipset@7-1?arch=all",
	} {
		if !strings.Contains(bill, `"`+part) {
			t.Errorf("the SBOM lacks %s", part)
		}
	}
	chart := must(t, nil, "tar", "-tzf", filepath.Join(out, "vmapd-chart.tgz"))
	for _, file := range []string{"Chart.yaml", "values.yaml", "templates/daemonset.yaml", "files/alerts.yaml"} {
		if !strings.Contains(chart, "vmapd/"+file+"\n") {
			t.Errorf("the chart lacks %s", file)
		}
	}
	deployed := must(t, nil, "find", filepath.Join(out, "deploy"))
	for _, file := range []string{
		"vmapd.yaml", "legacy.yaml", "monitoring/alerts.yaml", "from-kube-proxy.sed", "try-one-node.sh",
	} {
		if !strings.Contains(deployed, "/deploy/"+file+"\n") {
			t.Errorf("the release lacks deploy/%s", file)
		}
	}
}

func TestOtherBytesThanLockedAreRefused(t *testing.T) {
	_, log, err := release(t, []byte("something else"), deb(t))
	if err == nil || !strings.Contains(log, "another checksum than packages.lock says") {
		t.Errorf("want an error about the checksum, got %v:\n%s", err, log)
	}
}

// The programs of an image run with nothing around them, also for a user without rights.
func TestTheImageOfThisReleaseRuns(t *testing.T) {
	if *built == "" || os.Getuid() != 0 {
		t.Skip("-release does not name a folder, or this is not root: make -C cmd/internal/testbed test-images")
	}
	dir := t.TempDir()
	must(t, nil, "./release.sh", "unpack", filepath.Join(*built, "vmapd"), runtime.GOARCH, filepath.Join(dir, "image"))
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(filepath.Dir(dir), 0o755)); err != nil {
		t.Fatal(err)
	}
	objects := testaid.Read(t, "../../../testdata/demo/before/services.yaml")
	version, _, _ := strings.Cut(strings.TrimPrefix(testaid.Read(t, filepath.Join(*built, "images.txt")), "vmapd:"), "@")
	const nobody, vmapd = 65532, "/usr/local/bin/vmapd"
	for _, c := range []struct {
		user uint32
		args []string
		want string
	}{
		{0, []string{vmapd, "version"}, version},
		{nobody, []string{vmapd, "render", "-f", "-", "--node-name", "node-1", "--backend", "nftables"}, "default/web:tcp"},
		{0, []string{"/usr/sbin/iptables", "--version"}, "nf_tables"},
		{0, []string{"/usr/sbin/ip6tables-restore", "--version"}, "v"},
		{0, []string{"/usr/sbin/iptables-legacy-save", "--version"}, "legacy"},
		{0, []string{"/usr/sbin/ipset", "--version"}, "v"},
		{0, []string{"/usr/sbin/nft", "--version"}, "nftables v"},
		{0, []string{"/usr/sbin/modprobe", "--version"}, "kmod"},
	} {
		p := exec.CommandContext(t.Context(), c.args[0], c.args[1:]...)
		p.Dir, p.Stdin, p.Env = "/", strings.NewReader(objects), []string{"PATH=/usr/sbin:/usr/bin"}
		p.SysProcAttr = &syscall.SysProcAttr{
			Chroot: filepath.Join(dir, "image/root"), Credential: &syscall.Credential{Uid: c.user, Gid: c.user},
		}
		if out, err := p.CombinedOutput(); err != nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%v: %v; want %q in\n%.500s", c.args, err, c.want, out)
		}
	}
}
