package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/vmapd/vmapd/cmd/internal/testbed/debian"
)

// cache is the folder of downloads.
type cache struct{ debian.Cache }

// scratch returns a file that has no name, so that it can't stay behind.
func (c cache) scratch() (*os.File, error) {
	f, err := os.CreateTemp(c.Dir, "scratch-")
	if err != nil {
		return nil, err
	}
	return f, os.Remove(f.Name())
}

// kernel is an unpacked kernel package.
type kernel struct {
	image string
	dir   string // of modules
}

func getKernel(ctx context.Context, a debian.Archive, name string) (kernel, error) {
	dir, err := a.Folder(ctx, name, func(dir string) error { return unpackKernel(ctx, a, dir, name) })
	if err != nil {
		return kernel{}, fmt.Errorf("get kernel %s of %s: %w", name, a, err)
	}
	return kernel{image: filepath.Join(dir, "vmlinuz"), dir: filepath.Join(dir, "modules")}, nil
}

// unpackKernel leaves vmlinuz and modules in a folder.
func unpackKernel(ctx context.Context, a debian.Archive, dir, name string) error {
	if err := a.Update(ctx); err != nil {
		return err
	}
	needed, err := a.Apt(ctx, dir, "apt-cache", "depends", "--important", "--recurse", name)
	if err != nil {
		return err
	}
	if _, err := a.Apt(ctx, dir, "apt-get", append([]string{"-qq", "download"}, kernelPackages(needed)...)...); err != nil {
		return err
	}
	root := filepath.Join(dir, "root")
	if err := debian.Unpack(ctx, dir, root); err != nil {
		return err
	}
	modules := filepath.Join(dir, "modules")
	if err := errors.Join(
		move(filepath.Join(dir, "vmlinuz"), filepath.Join(root, "boot/vmlinuz-*"), filepath.Join(root, "usr/lib/modules/*/vmlinuz")),
		move(modules, filepath.Join(root, "lib/modules/*"), filepath.Join(root, "usr/lib/modules/*")),
		os.RemoveAll(root),
	); err != nil {
		return err
	}
	// From 6.12 on they are packed; the kernel could unpack them itself, but slowly.
	_, err = debian.Output(ctx, modules, "find", ".", "-name", "*.ko.xz", "-exec", "xz", "--decompress", "{}", "+")
	return err
}

// kernelPackages finds the parts of a kernel among all packages that one needs. Some have no files
// but need others, and from 7.3 on the modules are apart.
func kernelPackages(needed string) (parts []string) {
	for line := range strings.Lines(needed) {
		for _, prefix := range []string{"linux-image-", "linux-binary-", "linux-modules-", "linux-base-"} {
			if strings.HasPrefix(line, prefix) {
				parts = append(parts, strings.TrimSpace(line))
			}
		}
	}
	return parts
}

// move gives the one file or folder that matches a pattern another name.
func move(target string, patterns ...string) error {
	var found []string
	for _, p := range patterns {
		matches, err := filepath.Glob(p)
		if err != nil {
			return err
		}
		found = append(found, matches...)
	}
	if len(found) != 1 {
		return fmt.Errorf("the package has %d of %s, want one", len(found), strings.Join(patterns, ", "))
	}
	return os.Rename(found[0], target)
}
