package kube

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestAddressesOfSpaces(t *testing.T) {
	for space, want := range map[string][2]string{
		"control": {"192.168.77.10", "fd77::10"},
		"n1":      {"192.168.77.11", "fd77::11"},
		"n239":    {"192.168.77.249", "fd77::249"},
		"outside": {"192.168.77.250", "fd77::250"},
	} {
		v4, v6 := Addresses(space)
		if got := [2]string{v4.String(), v6.String()}; want != got {
			t.Errorf("%s: want %v, got %v", space, want, got)
		}
	}
	for _, space := range []string{"", "n0", "n01", "n240", "n-1", "n1x", "switch", "other"} {
		if v4, v6 := Addresses(space); v4.IsValid() || v6.IsValid() {
			t.Errorf("%q: want no addresses, got %v and %v", space, v4, v6)
		}
	}
}

func TestMissingProgramsAreNamed(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"etcd": 0o755, "kube-apiserver": 0o755, "kubelet": 0o644} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	err := (&Cluster{Config{KubeDir: dir}}).Check()
	if want := "lacks kube-controller-manager, kube-scheduler, kubelet, kubectl, kube-proxy, coredns, agnhost, e2e.test: "; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("want %q in the error, got %v", want, err)
	}
}

func TestAClusterThatCanNotBeIsAnError(t *testing.T) {
	for want, conf := range map[string]Config{
		"0 nodes":    {},
		"below /run": {Dir: "/run/cluster", Nodes: 2},
		"/var":       {KubeDir: "/var", Nodes: 2},
	} {
		if _, err := New(conf); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
}

// kubectl takes a word for a plugin's name only if no flag is before it.
func TestKubectlFindsItsPlugins(t *testing.T) {
	c := connect(Config{Dir: t.TempDir(), KubeDir: t.TempDir()})
	for _, dir := range []string{c.Plugins(), c.KubeDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		filepath.Join(c.KubeDir, "kubectl"):         "#!/bin/sh\n\"kubectl-$1\" \"$2\"\n",
		filepath.Join(c.Plugins(), "kubectl-vmapd"): "#!/bin/sh\necho \"$(command -v kubectl) $KUBECONFIG $*\"\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := c.KubectlCommand(t.Context(), "vmapd", "status")
	i := slices.Index(cmd.Args, "--") // of nsenter, which needs a cluster
	here := exec.Command(cmd.Args[i+1], cmd.Args[i+2:]...)
	here.Env = cmd.Env
	out, err := here.CombinedOutput()
	want := filepath.Join(c.KubeDir, "kubectl") + " " + c.Kubeconfig() + " status\n"
	if err != nil || string(out) != want {
		t.Errorf("want %q, got %q, %v", want, out, err)
	}
}

func TestAnEmptyFolderHasNoCluster(t *testing.T) {
	if _, err := Open(t.TempDir(), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("want %v, got %v", fs.ErrNotExist, err)
	}
}
