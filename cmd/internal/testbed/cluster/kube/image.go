package kube

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
)

// Names of images in the archives below images/. Nothing is pulled.
const (
	PauseImage     = "registry.k8s.io/pause:test"
	AgnhostImage   = "registry.k8s.io/e2e-test-images/agnhost:test"
	CoreDNSImage   = "registry.k8s.io/coredns/coredns:test"
	KubeProxyImage = "registry.k8s.io/kube-proxy:test"
	PodserverImage = "example.org/podserver:test"
	VmapdImage     = "example.org/vmapd:test"
)

// Source is the file that says from which commit vmapd's image is.
func (c *Cluster) Source() string { return c.path("images", "source") }

// ctr prepares containerd's client.
func (c *Cluster) ctr(ctx context.Context, node string, args ...string) *exec.Cmd {
	return c.In(ctx, node, append([]string{"ctr", "--namespace", "k8s.io"}, args...)...)
}

// LoadImages imports archives of images to a node.
func (c *Cluster) LoadImages(ctx context.Context, node string, archives ...string) error {
	for _, archive := range archives {
		if err := Run(c.ctr(ctx, node, "images", "import", archive)); err != nil {
			return fmt.Errorf("load image %s to node %s: %w", archive, node, err)
		}
	}
	return nil
}

// TagImage gives an image of a node a second name.
func (c *Cluster) TagImage(ctx context.Context, node, image, name string) error {
	return Run(c.ctr(ctx, node, "images", "tag", "--force", image, name))
}

// loadAllImages imports what is in the folder images.
func (c *Cluster) loadAllImages(ctx context.Context, node string) error {
	archives, err := filepath.Glob(c.path("images", "*.tar"))
	if err != nil {
		return err
	}
	return c.LoadImages(ctx, node, archives...)
}
