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
// whose image it brings to the nodes, and results the folder for results. It must be called in the root of the repository.
func New(ctx context.Context, c *kube.Cluster, proxy, before, results string) (*Run, error) {
	r := &Run{Cluster: c, Proxy: proxy, Results: results, Work: filepath.Join(c.Dir, "life")}
	text, err := os.ReadFile(filepath.Join(kube.Deploy, "FROM-KUBE-PROXY.md"))
	if err != nil {
		return nil, fmt.Errorf("read the page that steps follow: %w", err)
	}
	r.Page = ParsePage(string(text))
	if err := r.prepareFolder(); err != nil {
		return nil, err
	}
	if _, err := r.Shell(ctx, kube.Control, "command -v etcdctl; command -v etcdutl"); err != nil {
		return nil, fmt.Errorf("find etcd's programs for its snapshot: %w", err)
	}
	folder := filepath.Join(r.Work, "before")
	source := filepath.Join(folder, "source")
	const unpack = `rm -rf "$2"; mkdir -p "$3"; git archive "$1" | tar -x -C "$3"; cp "$3/$4/vmapd.yaml" "$2"
git rev-parse --short=10 "$1^{commit}" > "$2/commit"`
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

// commits names the commits of vmapd that take part in a step.
func (r *Run) commits(s Step) string {
	now, _ := os.ReadFile(r.Source()) // without it, the commit is unknown
	name := strings.TrimSpace(string(now))
	if s.From == Before {
		before, _ := os.ReadFile(filepath.Join(r.Work, "before/commit"))
		return strings.TrimSpace(string(before)) + " to " + name
	}
	return name
}

// Install makes one proxy serve on all nodes, in the place of the others. It changes nothing if
// that is so already.
func (r *Run) Install(ctx context.Context, proxy string) error {
	present, err := r.present(ctx)
	if err != nil || present == proxy {
		return err
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

// present returns the proxy whose DaemonSet is the only one, as Install made it.
func (r *Run) present(ctx context.Context) (string, error) {
	const each = `{range .items[*]}{.metadata.name} {.spec.template.spec.containers[0].image}{"\n"}{end}`
	out, err := r.Kubectl(ctx, "-n", "kube-system", "get", "daemonsets", "-o", "jsonpath="+each)
	if err != nil {
		return "", err
	}
	switch strings.TrimSpace(out) {
	case "vmapd " + kube.VmapdImage:
		return VMAPD, nil
	case "vmapd " + BeforeImage:
		return Before, nil
	case "kube-proxy " + kube.KubeProxyImage:
		const mode = `{.data.config\.conf}`
		conf, err := r.Kubectl(ctx, "-n", "kube-system", "get", "configmap", "kube-proxy", "-o", "jsonpath="+mode)
		for line := range strings.Lines(conf) {
			if m, ok := strings.CutPrefix(line, "mode: "); ok {
				return KubeProxy + strings.Trim(strings.TrimSpace(m), `"`), err
			}
		}
	}
	return "", nil
}

// prepareFolder copies vmapd's manifests, which the reader of a page is to edit, to the folder Work,
// without the edits of a former step.
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
