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
	"github.com/vmapd/vmapd/cmd/internal/testbed/debian"
)

// writeImages builds vmapd, and writes all images and the plugin of kubectl into the folder of a cluster.
func writeImages(ctx context.Context, c *kube.Cluster) error {
	user, err := os.UserCacheDir()
	if err != nil {
		return fmt.Errorf("find a folder for packages: %w", err)
	}
	cache := debian.Cache{Dir: filepath.Join(user, "vmapd-vm")}
	dir := filepath.Join(c.Dir, "images")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the folder of images: %w", err)
	}
	built, err := os.MkdirTemp(dir, "build-")
	if err != nil {
		return fmt.Errorf("make a folder for programs: %w", err)
	}
	defer func() { _ = os.RemoveAll(built) }()
	const module = "github.com/vmapd/vmapd/cmd/"
	for _, pkg := range []string{module + "vmapd", module + "internal/testbed/cluster/pause"} {
		build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", built+"/", pkg)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if err := kube.Run(build); err != nil {
			return err
		}
	}
	// Without the tests' program, images that only the tests use are left out.
	var listed string
	if tests := filepath.Join(c.KubeDir, testsProgram); exists(tests) {
		if listed, err = kube.Output(exec.CommandContext(ctx, tests, "--list-images")); err != nil {
			return err
		}
	}
	for _, i := range image.Set(c.KubeDir, filepath.Join(built, "vmapd"), filepath.Join(built, "pause"), listed) {
		if lacks := slices.DeleteFunc(slices.Collect(maps.Values(i.Programs)), exists); len(lacks) > 0 {
			c.Log.Warn("left out an image; tests that need it will fail", slog.String("image", i.Name), slog.Any("missing", lacks))
			continue
		}
		archive, err := i.Save(ctx, cache, dir)
		if err != nil {
			return err
		}
		c.Log.Info("wrote an image", slog.String("archive", archive))
	}
	// The program is kubectl's plugin by its name.
	plugin := filepath.Join(c.Plugins(), "kubectl-vmapd")
	if err := errors.Join(os.RemoveAll(c.Plugins()), os.MkdirAll(c.Plugins(), 0o755), os.Symlink(kube.Vmapd, plugin)); err != nil {
		return fmt.Errorf("write the plugin of kubectl: %w", err)
	}
	if err := os.Rename(filepath.Join(built, "vmapd"), filepath.Join(c.Plugins(), kube.Vmapd)); err != nil {
		return err
	}
	commit, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--exclude=*").Output()
	if err != nil {
		commit = []byte("unknown") // the source need not be a clone
	}
	return os.WriteFile(sourceFile(c), commit, 0o644)
}

// sourceFile says from which commit vmapd's images are.
func sourceFile(c *kube.Cluster) string { return filepath.Join(c.Dir, "images", "source") }

// testsProgram has Kubernetes' own tests.
const testsProgram = "e2e.test"

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}
