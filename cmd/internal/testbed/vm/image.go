package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"github.com/vmapd/vmapd/cmd/internal/testbed/debian"
)

const (
	jobFile     = "/vm/job" // in the guest
	modulesName = "0.0.0"   // of the folder of modules there, a version as depmod wants it; a link has the version of the kernel
	busyBox     = "busybox-static"
)

// writeImage writes the initramfs: what packages have, then the user's files, then the runner's own, which replace others.
// The folder loader has busybox for the guest, which loads modules, also for the kernel.
func (o *options) writeImage(ctx context.Context, c cache, to *os.File, k kernel, loader, packages string) error {
	dir, err := os.MkdirTemp(c.Dir, "guest-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	root := debian.Root(dir)
	if err := errors.Join(root.Add(ctx, packages), root.Add(ctx, loader)); err != nil {
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
	task, err := json.Marshal(job{o.dir, o.command})
	if err != nil {
		return err
	}
	if err := errors.Join(
		root.Copy(ctx, "init", o.init),
		root.Link("usr/sbin/modprobe", "../bin/busybox"),
		root.File(jobFile, string(task)),
		root.File("etc/hosts", "127.0.0.1 localhost\n::1 localhost\n"),
	); err != nil {
		return err
	}
	for _, m := range mounts() {
		if err := root.Dir(m.target, 0o755); err != nil {
			return err
		}
	}
	busybox, err := c.Packages(ctx, []string{busyBox})
	if err != nil {
		return err
	}
	busybox = filepath.Join(busybox, "bin/busybox")
	modules := root.Path(filepath.Join("usr/lib/modules", modulesName))
	if _, err := debian.Output(ctx, ".", "cp", "-rl", k.dir, modules); err != nil {
		return err
	}
	for _, name := range o.without {
		// The name of a module's file may have hyphens. What needs the module can't be loaded.
		pattern := regexp.MustCompile(`[-_]`).ReplaceAllString(name, "[-_]") + ".ko"
		if out, err := debian.Output(ctx, modules, "find", ".", "-name", pattern, "-print", "-delete"); err != nil || out == "" {
			return fmt.Errorf("leave out module %s: this kernel does not have it, or can't do without: %v", name, err) //nolint:errorlint // it may be nil
		}
	}
	if _, err := debian.Output(ctx, ".", busybox, "depmod", "-b", dir, modulesName); err != nil {
		return err
	}
	// The format is "newc" (the kernel's Documentation/driver-api/early-userspace/buffer-format.rst). All belongs to root.
	pack := debian.Command(ctx, "sh", "-c", `cd "$1" && find . | "$2" cpio -o -H newc -R 0:0`, "sh", dir, busybox)
	pack.Stdout = to
	return pack.Run()
}
