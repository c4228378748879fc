package life

import (
	"context"
	_ "embed"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/kube"
)

// New returns the steps' run in a cluster. proxy is the one that the run is about. It builds the commit before, and
// loads its image to the nodes. It must be called in the root of the repository.
func New(ctx context.Context, c *kube.Cluster, proxy, before string) (*Run, error) {
	r := &Run{Cluster: c, Proxy: proxy, Work: filepath.Join(c.Dir, "life")}
	if err := r.prepareFolder(); err != nil {
		return nil, err
	}
	folder := filepath.Join(r.Work, "before")
	source := filepath.Join(folder, "source")
	const unpack = `rm -rf "$2"; mkdir -p "$3"; git archive "$1" | tar -x -C "$3"; cp "$3/$4/vmapd.yaml" "$2"`
	args := []string{"-euo", "pipefail", "-c", unpack, "bash", before, folder, source, kube.Deploy}
	if err := kube.Run(exec.CommandContext(ctx, "bash", args...)); err != nil {
		return nil, err
	}
	if err := kube.Build(ctx, source, folder, "./cmd/vmapd"); err != nil {
		return nil, err
	}
	const name = "vmapd-before"
	if err := kube.WriteImages(ctx, "vmapd", name, BeforeImage, filepath.Join(folder, "vmapd"), r.Work); err != nil {
		return nil, err
	}
	for _, n := range r.Nodes() {
		if err := r.LoadImages(ctx, n, filepath.Join(r.Work, name+".tar")); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Install makes one proxy serve on all nodes, in the place of the others. It changes nothing if
// the step before left it so.
func (r *Run) Install(ctx context.Context, proxy string) error {
	if r.installed == proxy {
		return nil
	}
	if err := r.InstallProxy(ctx, r.proxy(proxy)); err != nil {
		return err
	}
	r.installed = proxy
	return nil
}

// proxy returns the proxy of a name.
func (r *Run) proxy(name string) kube.Proxy {
	p := kube.Proxy{Program: kube.Vmapd, Mode: "nftables"}
	switch mode, isKubeProxy := strings.CutPrefix(name, KubeProxy); {
	case isKubeProxy:
		p.Program, p.Mode = kube.KubeProxy, mode
	case name == Before:
		p.Image, p.Deploy = BeforeImage, filepath.Join(r.Work, "before")
	}
	return p
}

// prepareFolder makes the folder Work. Commands of a page use vmapd's manifests in it.
func (r *Run) prepareFolder() error {
	deploy, err := filepath.Abs(kube.Deploy)
	if err != nil {
		return err
	}
	for name, target := range map[string]string{kube.Deploy: deploy, "bin": r.Plugins(), ".kube/config": r.Kubeconfig()} {
		name = filepath.Join(r.Work, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			return err
		}
		if err := errors.Join(os.RemoveAll(name), os.Symlink(target, name)); err != nil {
			return err
		}
	}
	const conf = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n" +
		"clusterCIDR: " + kube.PodRanges + "\n"
	return errors.Join(
		os.WriteFile(filepath.Join(r.Work, "render.conf"), []byte(conf), 0o600),
		os.WriteFile(filepath.Join(r.Work, "table.jq"), []byte(lines), 0o600),
	)
}

// lines is the program that makes lines of a table.
//
//go:embed table.jq
var lines string
