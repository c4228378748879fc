package kube

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
)

// Programs that can be the Service proxy of a cluster; each is the name of its DaemonSet, too.
const (
	Vmapd     = "vmapd"
	KubeProxy = "kube-proxy"
)

// Deploy is the folder of vmapd's manifests, from the root of the repository.
const Deploy = "cmd/vmapd/deploy"

// Proxy is a Service proxy.
type Proxy struct {
	Program string // Vmapd or KubeProxy
	Mode    string // nftables or iptables
	Image   string // of the proxy; the default is one of images/
	Deploy  string // folder of vmapd's manifests; the default is the constant of that name
}

// ParseProxy reads PROGRAM or PROGRAM:MODE.
func ParseProxy(s string) (Proxy, error) {
	program, mode, hasMode := strings.Cut(s, ":")
	if !hasMode {
		mode = "nftables"
	}
	if program != Vmapd && program != KubeProxy || mode != "nftables" && mode != "iptables" {
		return Proxy{}, fmt.Errorf("proxy %q: want vmapd or kube-proxy, also with :nftables or :iptables", s)
	}
	return Proxy{Program: program, Mode: mode}, nil
}

// String returns the form that ParseProxy reads.
func (p Proxy) String() string { return p.Program + ":" + p.Mode }

// Manifest returns the proxy's manifest with everything filled in. Of legacy.yaml, which is a
// patch, it has nothing.
func (c *Cluster) Manifest(p Proxy) (string, error) {
	if p.Program == KubeProxy {
		return c.fill("kube-proxy.yaml", map[string]string{"Mode": p.Mode, "Image": cmp.Or(p.Image, KubeProxyImage)}), nil
	}
	data, err := os.ReadFile(filepath.Join(cmp.Or(p.Deploy, Deploy), "vmapd.yaml"))
	if err != nil {
		return "", fmt.Errorf("read vmapd's manifest: %w", err)
	}
	// What the head of vmapd.yaml says is to be filled in, and the backend. The nodes share a kernel, and none may set its
	// limit of connections.
	manifest := string(data)
	for _, r := range [][2]string{
		{"image: example.org/vmapd:latest", "image: " + cmp.Or(p.Image, VmapdImage)},
		{"server: https://control-plane.example:6443", "server: " + APIServer()},
		{"clusterCIDR: 10.244.0.0/16\n", "clusterCIDR: " + PodRanges + "\n    conntrack: {maxPerCore: 0}\n"},
		{"    kind: VmapdConfiguration\n", "    kind: VmapdConfiguration\n    backend: " + p.Mode + "\n"},
	} {
		if !strings.Contains(manifest, r[0]) {
			return "", fmt.Errorf("vmapd's manifest: it has no %q to be filled in", strings.TrimSpace(r[0]))
		}
		manifest = strings.ReplaceAll(manifest, r[0], r[1])
	}
	return manifest, nil
}

// InstallProxy makes p the Service proxy of all nodes, in the place of any other, and waits until
// it is ready everywhere. Nothing of the other one remains; a migration by docs/from-kube-proxy.md,
// in which Services work all the time, has other steps.
func (c *Cluster) InstallProxy(ctx context.Context, p Proxy) error {
	c.Log.Info("installing the Service proxy", slog.String("proxy", p.String()))
	if err := c.RemoveProxies(ctx); err != nil {
		return err
	}
	manifest, err := c.Manifest(p)
	if err != nil {
		return err
	}
	if err := c.Apply(ctx, manifest); err != nil {
		return fmt.Errorf("install %v: %w", p, err)
	}
	if p.Program == Vmapd && p.Mode == "iptables" {
		patch := "--patch-file=" + filepath.Join(cmp.Or(p.Deploy, Deploy), "legacy.yaml")
		if _, err := c.Kubectl(ctx, "--namespace=kube-system", "patch", "daemonset", Vmapd, patch); err != nil {
			return fmt.Errorf("install %v: %w", p, err)
		}
	}
	if err := c.RolledOut(ctx, "kube-system", "daemonset/"+p.Program); err != nil {
		return err
	}
	// The DaemonSet of kube-proxy has no readiness probe, so its pods are ready before they have programmed anything.
	for _, node := range c.Nodes() {
		err := Until(ctx, startLimit, "wait for Services on "+node, func() error {
			return Run(c.In(ctx, node, "timeout", "1", "bash", "-c", "exec 3<>/dev/tcp/"+kubernetes4+"/443"))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// RemoveProxies deletes the objects of Service proxies and, by "vmapd cleanup", their rules on the nodes.
func (c *Cluster) RemoveProxies(ctx context.Context) error {
	remove := []string{"--namespace=kube-system", "delete", "--ignore-not-found", "--cascade=foreground", "--wait"}
	for _, args := range [][]string{
		append(remove, "daemonset", Vmapd, KubeProxy, "vmapd-cleanup"),
		append(remove, "configmap", Vmapd, KubeProxy),
		{"label", "nodes", "--all", "vmapd.io/proxy-"},
	} {
		if _, err := c.Kubectl(ctx, args...); err != nil {
			return err
		}
	}
	for _, node := range c.Nodes() {
		if err := Run(c.In(ctx, node, filepath.Join(c.Plugins(), Vmapd), "cleanup")); err != nil {
			return fmt.Errorf("clean up %s: %w", node, err)
		}
	}
	return nil
}
