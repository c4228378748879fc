package kube

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Names of images in the archives below images/, which images.sh writes. Nothing is pulled.
const (
	PauseImage     = "registry.k8s.io/pause:test"
	CoreDNSImage   = "registry.k8s.io/coredns/coredns:test"
	KubeProxyImage = "registry.k8s.io/kube-proxy:test"
	PodserverImage = "example.org/podserver:test"
	VmapdImage     = "example.org/vmapd:test"
)

// cniPrograms is the folder of the CNI plugins of Debian.
const cniPrograms = "/usr/lib/cni"

// startNode makes a node, and waits until it is ready.
func (c *Cluster) startNode(ctx context.Context, node string) error {
	if _, err := c.inGroups("make_group " + node); err != nil {
		return err
	}
	if err := c.plugIn(ctx, node); err != nil {
		return err
	}
	values, err := c.configureNode(ctx, node)
	if err != nil {
		return err
	}
	p := c.Process("containerd-" + node)
	p.Space, p.Args = node, []string{"containerd", "--config", filepath.Join(values["Folder"], "containerd.toml")}
	if err := p.Start(ctx); err != nil {
		return err
	}
	answers := func() error { return Run(c.In(ctx, node, "ctr", "version")) }
	if err := Until(ctx, startLimit, "wait for containerd", answers, p); err != nil {
		return err
	}
	archives, err := filepath.Glob(c.path("images", "*.tar"))
	if err != nil {
		return err
	}
	if err := c.LoadImages(ctx, node, archives...); err != nil {
		return err
	}
	if err := c.startProgram(ctx, "kubelet", "kubelet-"+node, node, values); err != nil {
		return err
	}
	return c.AwaitNode(ctx, node)
}

// configureNode writes the files of a node, and returns the values that its templates have.
func (c *Cluster) configureNode(ctx context.Context, node string) (map[string]string, error) {
	v4, v6 := Addresses(node)
	values := map[string]string{
		"Node": node, "NodeAddresses": fmt.Sprintf("%v,%v", v4, v6), "Folder": c.path("nodes", node),
		"Group": "/" + c.group() + "/" + node, "PauseImage": PauseImage, "CNIPrograms": cniPrograms,
	}
	values["Range4"], values["Range6"] = podRanges(node)
	if err := os.MkdirAll(c.path("nodes", node, "cni"), 0o755); err != nil {
		return nil, err
	}
	for _, name := range []string{"containerd.toml", "kubelet.yaml", "resolv.conf", "cni.conflist"} {
		file := c.path("nodes", node, strings.Replace(name, "cni.", "cni/10-testbed.", 1))
		if err := os.WriteFile(file, []byte(c.fill(name, values)), 0o644); err != nil {
			return nil, err
		}
	}
	const issue = "issue ca %[1]s /O=system:nodes/CN=system:node:%[1]s DNS:%[1]s,IP:%v,IP:%v"
	return values, c.PKI(ctx, fmt.Sprintf(issue, node, v4, v6))
}

// Source is the file that says from which commit vmapd's image is.
func (c *Cluster) Source() string { return c.path("images", "source") }

// WriteImages runs the script that writes images, in the root of the repository.
func WriteImages(ctx context.Context, args ...string) error {
	return Run(exec.CommandContext(ctx, "cmd/internal/testbed/cluster/images.sh", args...))
}

// Build compiles commands of the module in the folder source into another folder.
func Build(ctx context.Context, source, dir string, packages ...string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-trimpath", "-o", dir + "/"}, packages...)...)
	cmd.Dir, cmd.Env = source, append(os.Environ(), "CGO_ENABLED=0")
	return Run(cmd)
}

// LoadImages imports archives of images to a node.
func (c *Cluster) LoadImages(ctx context.Context, node string, archives ...string) error {
	for _, archive := range archives {
		if err := Run(c.In(ctx, node, "ctr", "--namespace", "k8s.io", "images", "import", archive)); err != nil {
			return fmt.Errorf("load image %s to node %s: %w", archive, node, err)
		}
	}
	return nil
}

// AwaitNode waits until a node is ready.
func (c *Cluster) AwaitNode(ctx context.Context, node string) error {
	const state = `jsonpath={.status.conditions[?(@.type=="Ready")].status}{.spec.taints[*].key}`
	return Until(ctx, startLimit, "wait for node "+node+" to be ready", func() error {
		out, err := c.Kubectl(ctx, "get", "node", node, "-o", state)
		if err == nil && out != "True" {
			err = fmt.Errorf("ready, and its taints: %s", out)
		}
		return err
	}, c.Process("kubelet-"+node), c.Process("containerd-"+node), c.Process(apiserver))
}
