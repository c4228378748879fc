package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"

	"github.com/vmapd/vmapd/cmd/internal/testbed/debian"
)

// Paths of the job and of the modules in the guest.
const (
	jobFile     = "/vm/job"
	catalogFile = "/vm/catalog"
	modulesDir  = "/vm/modules"
)

// writeImage writes the initramfs: what packages have, then the user's files, then the runner's own, which replace others.
func (o *options) writeImage(ctx context.Context, c cache, to *os.File, k kernel, modules catalog, packages string) error {
	dir, err := os.MkdirTemp(c.Dir, "guest-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	root := debian.Root(dir)
	if err := root.Add(ctx, packages); err != nil {
		return err
	}
	if _, err := os.Stat(root.Path("usr/sbin/xtables-" + o.iptables + "-multi")); err == nil {
		if err := root.IPTables(o.iptables); err != nil {
			return err
		}
	}
	for _, f := range o.files {
		if err := root.Copy(ctx, f.target, f.source); err != nil {
			return fmt.Errorf("--file: %w", err)
		}
	}
	job, err := o.job()
	if err != nil {
		return err
	}
	if err := errors.Join(
		root.Copy(ctx, "init", o.init),
		root.Link("usr/sbin/modprobe", "/init"),
		root.File(jobFile, string(job)),
		root.File(catalogFile, modules.text()),
		root.File("etc/hosts", "127.0.0.1 localhost\n::1 localhost\n"),
	); err != nil {
		return err
	}
	for _, m := range mounts() {
		if err := root.Dir(m.target, 0o755); err != nil {
			return err
		}
	}
	for _, m := range modules {
		if m.path == "" {
			continue
		}
		name := root.Path(path.Join(modulesDir, m.path))
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.Link(filepath.Join(k.dir, m.path), name)); err != nil {
			return err
		}
	}
	// The format is "newc" (the kernel's Documentation/driver-api/early-userspace/buffer-format.rst). All belongs to root.
	busybox, err := c.Packages(ctx, []string{"busybox-static"})
	if err != nil {
		return err
	}
	pack := debian.Command(ctx, "sh", "-c", `cd "$1" && find . | "$2" cpio -o -H newc -R 0:0`, "sh", dir, filepath.Join(busybox, "bin/busybox"))
	pack.Stdout = to
	return pack.Run()
}
