package main

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
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
	for name, programs := range map[string][]string{imageName: {"iptables", "ip6tables-restore", "iptables-legacy-save", "ipset", "modprobe"}} {
		found := images(t, filepath.Join(*built, name))
		lists, err := filepath.Glob(filepath.Join(*built, name+"-[a-z0-9]*.spdx.json"))
		for arch := range found {
			if !slices.Contains(lists, filepath.Join(*built, name+"-"+arch+".spdx.json")) {
				t.Errorf("%s for %s has no SBOM: %v", name, arch, err)
			}
		}
		folder := filepath.Join(t.TempDir(), "image")
		if err := unpackImage(found[runtime.GOARCH], folder); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Dir(filepath.Dir(folder)), 0o755); err != nil { // so that another user may enter
			t.Fatal(err)
		}
		root := filepath.Join(folder, unpackedRoot)
		if got := inside(t, root, 0, "", "/usr/local/bin/vmapd", "version"); !strings.Contains(got, program.version) || !strings.Contains(got, program.commit) {
			t.Errorf("%s: vmapd version prints\n%s", name, got)
		}
		rules := inside(t, root, nobody, objects, "/usr/local/bin/vmapd", "render", "-f", "-", "--node-name", "node-1", "--backend", "nftables")
		if !strings.Contains(rules, `172.30.0.10 . tcp . 80 comment "default/web:tcp"`) {
			t.Errorf("%s: vmapd render prints\n%.500s", name, rules)
		}
		for _, p := range programs {
			path := "/usr/sbin/" + p
			if got := inside(t, root, 0, "", path, "--version"); !strings.Contains(got, "v") {
				t.Errorf("%s: %s --version prints %q", name, p, got)
			} else {
				t.Logf("%s: %s", p, strings.SplitN(got, "\n", 2)[0])
			}
		}
	}
}

// The checksums are those of the files, and one signature on them is one on all files.
func TestTheChecksumsAreSignedAndVerified(t *testing.T) {
	needRelease(t)
	dir, err := filepath.Abs(*built)
	if err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(t.TempDir(), "key")
	signers := filepath.Join(t.TempDir(), "signers")
	work := t.TempDir()
	if err := os.WriteFile(filepath.Join(work, sumsName), []byte(mustRead(t, dir, sumsName)), 0o600); err != nil {
		t.Fatal(err)
	}
	sh := func(folder, script string) (string, error) {
		c := exec.CommandContext(t.Context(), "sh", "-ec", script)
		c.Dir, c.Env = folder, append(os.Environ(), "KEY="+key, "SIGNERS="+signers, "WORK="+work)
		out, err := c.CombinedOutput()
		return string(out), err
	}
	const verify = `ssh-keygen -Y verify -f "$SIGNERS" -I release@vmapd -n file -s "$WORK/SHA256SUMS.sig" <"$WORK/SHA256SUMS"`
	for _, step := range [][2]string{
		{dir, "sha256sum --quiet -c SHA256SUMS"},
		{work, `ssh-keygen -q -t ed25519 -N "" -f "$KEY" && printf 'release@vmapd namespaces="file" %s\n' "$(cat "$KEY.pub")" >"$SIGNERS"`},
		{work, `ssh-keygen -Y sign -f "$KEY" -n file SHA256SUMS`},
		{work, verify},
	} {
		if out, err := sh(step[0], step[1]); err != nil {
			t.Fatalf("%s: %v\n%s", step[1], err, out)
		}
	}
	if out, err := sh(work, `echo >>SHA256SUMS; `+verify); err == nil {
		t.Errorf("changed checksums are still signed: %s", out)
	}
}
