package life

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/image"
	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/kube"
)

// New returns the steps' run in a cluster. proxy is the one that the run is about, before the commit of the version before,
// whose image it brings to the nodes. It must be called in the root of the repository.
func New(ctx context.Context, c *kube.Cluster, proxy, before string) (*Run, error) {
	r := &Run{Cluster: c, Proxy: proxy, Work: filepath.Join(c.Dir, "life")}
	if err := r.prepareFolder(); err != nil {
		return nil, err
	}
	if _, err := r.Shell(ctx, kube.Control, "command -v etcdctl; command -v etcdutl"); err != nil {
		return nil, fmt.Errorf("find etcd's programs for its snapshot: %w", err)
	}
	folder := filepath.Join(r.Work, "before")
	source := filepath.Join(folder, "source")
	const unpack = `rm -rf "$2"; mkdir -p "$3"; git archive "$1" | tar -x -C "$3"; cp "$3/$4/vmapd.yaml" "$2"`
	if err := kube.Run(exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", unpack, "bash", before, folder, source, kube.Deploy)); err != nil {
		return nil, err
	}
	if err := image.Build(ctx, source, folder, "./cmd/vmapd"); err != nil {
		return nil, err
	}
	archive, err := image.VmapdImage("vmapd-before", BeforeImage, filepath.Join(folder, "vmapd")).Save(ctx, r.Work)
	if err != nil {
		return nil, err
	}
	for _, n := range r.Nodes() {
		if err := r.LoadImages(ctx, n, archive); err != nil {
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
	if err := r.RemoveProxies(ctx); err != nil {
		return err
	}
	manifest, err := r.manifest(proxy)
	if err != nil {
		return err
	}
	if err := r.Apply(ctx, manifest); err != nil {
		return err
	}
	r.installed = proxy
	return r.RolledOut(ctx, "kube-system", "daemonset/"+program(proxy))
}

// program is also the name of a proxy's DaemonSet.
func program(proxy string) string {
	return strings.FieldsFunc(proxy, func(r rune) bool { return r == ':' || r == ' ' })[0]
}

// manifest returns the objects of a proxy, with everything filled in.
func (r *Run) manifest(proxy string) (string, error) {
	p := kube.Proxy{Program: kube.Vmapd, Mode: "nftables", Deploy: filepath.Join(r.Work, kube.Deploy)}
	switch mode, isKubeProxy := strings.CutPrefix(proxy, KubeProxy); {
	case isKubeProxy:
		p.Program, p.Mode = kube.KubeProxy, mode
	case proxy == Before:
		p.Image, p.Deploy = BeforeImage, filepath.Join(r.Work, "before")
	}
	return r.Cluster.Manifest(p)
}

// prepareFolder copies vmapd's manifests, which commands of a page use, to the folder Work.
func (r *Run) prepareFolder() error {
	if err := os.RemoveAll(filepath.Join(r.Work, kube.Deploy)); err != nil {
		return err
	}
	if err := os.CopyFS(filepath.Join(r.Work, kube.Deploy), os.DirFS(kube.Deploy)); err != nil {
		return fmt.Errorf("copy the manifests: %w", err)
	}
	const conf = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nclusterCIDR: " + kube.PodRanges + "\n"
	if err := os.WriteFile(filepath.Join(r.Work, "render.conf"), []byte(conf), 0o600); err != nil {
		return err
	}
	for name, target := range map[string]string{"bin": r.Plugins(), ".kube/config": r.Kubeconfig()} {
		name = filepath.Join(r.Work, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.RemoveAll(name), os.Symlink(target, name)); err != nil {
			return err
		}
	}
	return nil
}
