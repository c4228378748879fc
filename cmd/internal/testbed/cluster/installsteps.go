package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/kube"
)

// byImport brings the image into each node, and the objects by kubectl; then Helm takes these. It comes before the registry:
// of an image that it once pulled with a secret, the kubelet wants one from each pod, wherever the image came from later.
func (i *installation) byImport(ctx context.Context) error {
	if err := i.step(ctx, imported, "images import", i.Nodes()...); err != nil {
		return err
	}
	if err := i.values("values-imported.yaml", ""); err != nil {
		return err
	}
	if err := i.step(ctx, rendered, "helm template", kube.Control); err != nil {
		return err
	}
	if err := i.AwaitServices(ctx); err != nil {
		return err
	}
	// Without a registry, containerd names an image by the digest of its configuration.
	image, err := configOf(filepath.Join(i.Work, "vmapd"))
	if err != nil {
		return err
	}
	if err := i.releasedImages(ctx, image); err != nil {
		return err
	}
	before, err := i.pods(ctx)
	if err != nil {
		return err
	}
	if err := i.step(ctx, rendered, "--take-ownership", kube.Control); err != nil {
		return err
	}
	if err := i.same(ctx, ""); err != nil {
		return err
	}
	return i.samePods(ctx, before)
}

// forget removes what byImport brought into the nodes, so that they pull.
func (i *installation) forget(ctx context.Context) error {
	for _, node := range i.Nodes() {
		if _, err := i.Shell(ctx, node, "ctr -n k8s.io images remove --sync example.org/vmapd:"+i.version); err != nil {
			return err
		}
	}
	return nil
}

// byRegistry brings the image to a registry, by each tool of the page, and no other to a node.
func (i *installation) byRegistry(ctx context.Context) error {
	if err := i.StartRegistry(ctx, i.registry); err != nil {
		return err
	}
	for _, tool := range []string{"skopeo copy", "crane push"} {
		if err := i.step(ctx, released, tool, kube.Control); err != nil {
			return err
		}
		if err := i.step(ctx, released, "grep -xF", kube.Control); err != nil {
			return err
		}
	}
	return i.step(ctx, released, "create secret", kube.Control)
}

func (i *installation) byHelm(ctx context.Context) error {
	if err := i.values("values-released.yaml", ""); err != nil {
		return err
	}
	if err := i.step(ctx, released, "helm install vmapd vmapd-chart.tgz", kube.Control); err != nil {
		return err
	}
	if err := i.AwaitServices(ctx); err != nil {
		return err
	}
	if err := i.InstallDNS(ctx); err != nil {
		return err
	}
	if err := i.namesResolve(ctx); err != nil {
		return err
	}
	if err := i.releasedImages(ctx, kube.Registry()+"/vmapd@"+i.digest); err != nil {
		return err
	}
	if err := i.same(ctx, ""); err != nil {
		return err
	}
	return i.step(ctx, released, "kubectl vmapd", kube.Control)
}

// change upgrades to another value, of a file, and rolls back: the daemon restarts with it.
func (i *installation) change(ctx context.Context) error {
	if err := i.values("values-released.yaml", "vmapdConfig:\n  dropInvalid: true\n"); err != nil {
		return err
	}
	if err := i.step(ctx, changed, "helm upgrade", kube.Control); err != nil {
		return err
	}
	if err := i.same(ctx, "dropInvalid: true"); err != nil {
		return err
	}
	if err := i.step(ctx, changed, "helm rollback", kube.Control); err != nil {
		return err
	}
	return i.same(ctx, "")
}

// uninstall removes the release, which leaves the rules, and installs the chart from the registry beside these.
func (i *installation) uninstall(ctx context.Context) error {
	if err := i.values("values-released.yaml", ""); err != nil {
		return err
	}
	if err := i.step(ctx, removed, "helm uninstall", kube.Control); err != nil {
		return err
	}
	if err := i.nothingRuns(ctx); err != nil {
		return err
	}
	if err := i.AwaitServices(ctx); err != nil {
		return fmt.Errorf("the rules went with the release: %w", err)
	}
	if err := i.same(ctx, ""); err != nil {
		return err
	}
	return i.step(ctx, released, "helm push", kube.Control)
}

// remove removes the release and the rules.
func (i *installation) remove(ctx context.Context) error {
	if err := i.step(ctx, removed, "cleanup=everything", kube.Control); err != nil {
		return err
	}
	if err := errors.Join(i.NoTables(ctx), i.noService(ctx)); err != nil {
		return err
	}
	if err := i.step(ctx, removed, "helm uninstall", kube.Control); err != nil {
		return err
	}
	return i.nothingRuns(ctx)
}
