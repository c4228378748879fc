package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/image"
	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/kube"
)

// writeImages builds vmapd, which is a plugin of kubectl, too, and writes all images into the folder of a cluster. It
// must be called in the root of the repository.
func writeImages(ctx context.Context, c *kube.Cluster) error {
	dir, built := filepath.Join(c.Dir, "images"), c.Plugins()
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.RemoveAll(built), os.MkdirAll(built, 0o755)); err != nil {
		return fmt.Errorf("make the folder of images: %w", err)
	}
	const testbed = "./cmd/internal/testbed/cluster/"
	if err := image.Build(ctx, ".", built, "./cmd/vmapd", testbed+"pause", testbed+"podserver"); err != nil {
		return err
	}
	if err := os.Symlink(kube.Vmapd, filepath.Join(built, "kubectl-vmapd")); err != nil { // the plugin, by its name
		return err
	}
	listed, err := kube.Output(exec.CommandContext(ctx, filepath.Join(c.KubeDir, testsProgram), "--list-images"))
	if err != nil {
		return err
	}
	for _, i := range image.Set(c.KubeDir, built, listed) {
		missing := slices.DeleteFunc(slices.Collect(maps.Values(i.Programs)), func(name string) bool {
			_, err := os.Stat(name)
			return err == nil
		})
		if len(missing) > 0 {
			c.Log.Warn("left out an image; tests that need it will fail",
				slog.String("image", i.Name), slog.Any("missing", missing))
			continue
		}
		archive, err := i.Save(ctx, dir)
		if err != nil {
			return err
		}
		c.Log.Info("wrote an image", slog.String("archive", archive))
	}
	describe := exec.CommandContext(ctx, "git", "describe", "--always", "--abbrev=10", "--dirty", "--exclude=*")
	commit, err := describe.Output()
	if err != nil {
		commit = []byte("unknown") // the source need not be a clone
	}
	return os.WriteFile(c.Source(), commit, 0o644)
}

// testsProgram has Kubernetes' own tests.
const testsProgram = "e2e.test"
