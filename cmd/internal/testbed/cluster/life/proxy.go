package life

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/kube"
)

// deploy is the folder of vmapd's manifests, from the root of the repository.
const deploy = "cmd/vmapd/deploy"

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
	p := kube.Proxy{Program: kube.Vmapd, Mode: "nftables", Deploy: filepath.Join(r.Work, deploy)}
	switch mode, isKubeProxy := strings.CutPrefix(proxy, KubeProxy); {
	case isKubeProxy:
		p.Program, p.Mode = kube.KubeProxy, mode
	case proxy == Before:
		p.Image, p.Deploy = BeforeImage, filepath.Join(r.Work, "before")
	}
	m, err := p.Manifest()
	if err != nil {
		return "", fmt.Errorf("manifest of %s: %w", proxy, err)
	}
	if p.Program == kube.Vmapd {
		// The nodes share a kernel, whose limit of connections none of them may set.
		const ranges = "clusterCIDR: " + kube.PodRanges + "\n"
		m = strings.Replace(m, ranges, ranges+"    conntrack: {maxPerCore: 0}\n", 1)
	}
	return m, nil
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
	if err := os.RemoveAll(filepath.Join(r.Work, deploy)); err != nil {
		return err
	}
	if err := os.CopyFS(filepath.Join(r.Work, deploy), os.DirFS(r.Deploy)); err != nil {
		return fmt.Errorf("copy the manifests: %w", err)
	}
	for name, target := range map[string]string{"bin": r.Plugins(), ".kube/config": r.Kubeconfig()} {
		name = filepath.Join(r.Work, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.RemoveAll(name), os.Symlink(target, name)); err != nil {
			return err
		}
	}
	return nil
}
