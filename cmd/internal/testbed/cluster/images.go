package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/kube"
)

// writeImages builds vmapd, which is a plugin of kubectl, too, and writes all images into the folder of a cluster. It
// must be called in the root of the repository.
func writeImages(ctx context.Context, c *kube.Cluster) error {
	built := c.Plugins()
	if err := errors.Join(os.RemoveAll(built), os.MkdirAll(built, 0o755)); err != nil {
		return fmt.Errorf("make the folder of programs: %w", err)
	}
	const testbed = "./cmd/internal/testbed/cluster/"
	if err := kube.Build(ctx, ".", built, "./cmd/vmapd", testbed+"pause", testbed+"podserver"); err != nil {
		return err
	}
	if err := os.Symlink(kube.Vmapd, filepath.Join(built, "kubectl-vmapd")); err != nil { // the plugin, by its name
		return err
	}
	c.Log.Info("writing the images")
	if err := kube.WriteImages(ctx, "set", c.KubeDir, built, filepath.Dir(c.Source())); err != nil {
		return err
	}
	describe := exec.CommandContext(ctx, "git", "describe", "--always", "--abbrev=10", "--dirty", "--exclude=*")
	commit, err := describe.Output()
	if err != nil {
		commit = []byte("unknown") // the source need not be a clone
	}
	return os.WriteFile(c.Source(), commit, 0o644)
}
