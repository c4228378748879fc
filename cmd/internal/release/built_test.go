package main

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// make -C cmd/internal/testbed test-images sets it.
var built = flag.String("release", "", "folder of a release, whose images are tried")

func needRelease(t *testing.T) {
	t.Helper()
	if *built == "" {
		t.Skip("-release does not name a folder: make -C cmd/internal/testbed test-images")
	}
}

// inside runs a program of an unpacked image, with nothing around it, as a user.
func inside(t *testing.T, root string, user uint32, stdin, name string, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), name, args...)
	c.Dir, c.Stdin, c.Env = "/", strings.NewReader(stdin), []string{"PATH=/usr/sbin:/usr/bin"}
	c.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: user, Gid: user}}
	out, err := c.CombinedOutput()
	if err != nil {
		t.Errorf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

func TestTheImagesOfThisReleaseRun(t *testing.T) {
	needRelease(t)
	if os.Getuid() != 0 {
		t.Skip("only root may change its root folder")
	}
	program, err := readProgram(filepath.Join(*built, "vmapd-"+runtime.GOARCH), runtime.GOARCH)
	if err != nil {
		t.Fatal(err)
	}
	manifests, err := filepath.Glob("../../../testdata/demo/before/*.yaml")
	if err != nil || len(manifests) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	objects := ""
	for _, m := range manifests {
		objects += mustRead(t, m) + "\n---\n"
	}
	const nobody = 65532
	found := images(t, filepath.Join(*built, imageName))
	for arch := range found {
		if _, err := os.Stat(filepath.Join(*built, imageName+"-"+arch+".spdx.json")); err != nil {
			t.Errorf("the image for %s has no SBOM: %v", arch, err)
		}
	}
	folder := filepath.Join(t.TempDir(), "image")
	if err := unpackImage(t.Context(), found[runtime.GOARCH], folder); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(filepath.Dir(folder)), 0o755); err != nil { // so that another user may enter
		t.Fatal(err)
	}
	root := filepath.Join(folder, unpackedRoot)
	if got := inside(t, root, 0, "", "/usr/local/bin/vmapd", "version"); !strings.Contains(got, program.version) || !strings.Contains(got, program.commit) {
		t.Errorf("vmapd version prints\n%s", got)
	}
	rules := inside(t, root, nobody, objects, "/usr/local/bin/vmapd", "render", "-f", "-", "--node-name", "node-1", "--backend", "nftables")
	if !strings.Contains(rules, `172.30.0.10 . tcp . 80 comment "default/web:tcp"`) {
		t.Errorf("vmapd render prints\n%.500s", rules)
	}
	for _, p := range []string{"iptables", "ip6tables-restore", "iptables-legacy-save", "ipset", "modprobe"} {
		path := "/usr/sbin/" + p
		if got := inside(t, root, 0, "", path, "--version"); !strings.Contains(got, "v") {
			t.Errorf("%s --version prints %q", p, got)
		} else {
			t.Logf("%s: %s", p, strings.SplitN(got, "\n", 2)[0])
		}
	}
}
