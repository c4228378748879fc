package kube

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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

func TestRangesDoNotOverlap(t *testing.T) {
	var all []netip.Prefix
	for _, list := range []string{ServiceRanges, PodRanges, "192.168.77.0/24,fd77::/64"} {
		for s := range strings.SplitSeq(list, ",") {
			all = append(all, netip.MustParsePrefix(s))
		}
	}
	for i, a := range all {
		for _, b := range all[:i] {
			if a.Overlaps(b) {
				t.Errorf("%v overlaps %v", a, b)
			}
		}
	}
	for _, s := range []string{DNSAddress, kubernetes4, kubernetes6} {
		a := netip.MustParseAddr(s)
		if !all[0].Contains(a) && !all[1].Contains(a) {
			t.Errorf("%v is in no range of Services", a)
		}
	}
}

func TestParseProxy(t *testing.T) {
	for text, want := range map[string]Proxy{
		"vmapd":               {Program: Vmapd, Mode: "nftables"},
		"vmapd:iptables":      {Program: Vmapd, Mode: "iptables"},
		"kube-proxy":          {Program: KubeProxy, Mode: "nftables"},
		"kube-proxy:iptables": {Program: KubeProxy, Mode: "iptables"},
	} {
		got, err := ParseProxy(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
	for _, text := range []string{"", "cilium", "none", "vmapd:", "vmapd:ipvs", "kube-proxy:userspace"} {
		if p, err := ParseProxy(text); err == nil {
			t.Errorf("%q: want an error, got %v", text, p)
		}
	}
}

func TestMissingProgramsAreNamed(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"etcd": 0o755, "kube-apiserver": 0o755, "kubelet": 0o644, "agnhost": 0o755} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "kubectl"), 0o755); err != nil {
		t.Fatal(err)
	}
	want := []string{"kube-controller-manager", "kube-scheduler", "kubelet", "kubectl", "e2e.test"}
	got := Missing(dir, "agnhost", "e2e.test")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("missing (-want +got):\n%s", diff)
	}
	text := (&MissingError{dir, got}).Error()
	for _, want := range []string{"kubelet", "e2e.test", "dl.k8s.io", "github.com/etcd-io/etcd/releases"} {
		if !strings.Contains(text, want) {
			t.Errorf("want %s in the error, got %s", want, text)
		}
	}
}

func TestAClusterThatCanNotBeIsAnError(t *testing.T) {
	good := Config{Name: "t", Dir: t.TempDir(), KubeDir: t.TempDir(), Nodes: 2}
	if _, err := New(good); err != nil && !strings.Contains(err.Error(), "control groups") {
		t.Errorf("want none, got %v", err)
	}
	for want, change := range map[string]func(*Config){
		"name of the cluster": func(c *Config) { c.Name = "Über" },
		"up to ten":           func(c *Config) { c.Name = "abcdefghijk" },
		"0 nodes":             func(c *Config) { c.Nodes = 0 },
		"below /run":          func(c *Config) { c.Dir = "/run/cluster" },
		"below /var":          func(c *Config) { c.KubeDir = "/var" },
	} {
		conf := good
		change(&conf)
		if _, err := New(conf); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
}

// kubectl takes a word for a plugin's name only if no flag is before it.
func TestKubectlFindsItsPlugins(t *testing.T) {
	c := &Cluster{Config: Config{Dir: t.TempDir(), KubeDir: t.TempDir()}}
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

func TestAProcessIsToldFromALaterOneWithItsID(t *testing.T) {
	id, err := identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if !id.alive() {
		t.Error("this process does not run")
	}
	id.Born++
	if id.alive() {
		t.Error("a process of another time runs")
	}
}
