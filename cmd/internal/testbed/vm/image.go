package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

	"github.com/vmapd/vmapd/cmd/internal/testbed/debian"
)

//go:embed init.sh
var initScript string

const (
	modulesName = "0.0.0" // of the guest's modules, a version as depmod wants it; a link has the version of the kernel
	busyBox     = "busybox-static"
)

// writeImage writes the initramfs: files of packages, then the user's, then the runner's own, which replace the former.
// The folder loader has busybox for the guest; kernel is of getKernel.
func (o *options) writeImage(ctx context.Context, dir, kernel, loader, packages string) error {
	root := debian.Root(filepath.Join(dir, "root"))
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
	if err := errors.Join(
		root.File("init", initScript),
		os.Chmod(root.Path("init"), 0o755),
		root.Link("usr/sbin/modprobe", "../bin/busybox"),
		root.File("vm/job", o.job()),
		root.File("etc/hosts", "127.0.0.1 localhost\n::1 localhost\n"),
	); err != nil {
		return err
	}
	host, err := debian.Open(runtime.GOARCH, debian.Suite)
	if err != nil {
		return err
	}
	busybox, err := host.Packages(ctx, busyBox)
	if err != nil {
		return err
	}
	busybox = filepath.Join(busybox, "bin/busybox")
	modules := root.Path(filepath.Join("usr/lib/modules", modulesName))
	if _, err := debian.Output(ctx, ".", "cp", "-rl", filepath.Join(kernel, "modules"), modules); err != nil {
		return err
	}
	for _, name := range o.without {
		// The name of a module's file may have hyphens. What needs the module can't be loaded.
		pattern := regexp.MustCompile(`[-_]`).ReplaceAllString(name, "[-_]") + ".ko"
		out, err := debian.Output(ctx, modules, "find", ".", "-name", pattern, "-print", "-delete")
		if err == nil && out == "" {
			err = errors.New("this kernel does not have it, or can't do without it")
		}
		if err != nil {
			return fmt.Errorf("leave out module %s: %w", name, err)
		}
	}
	// The format is "newc" (the kernel's Documentation/driver-api/early-userspace/buffer-format.rst). All belongs to root.
	const pack = `"$1" depmod -b root "$2"; cd root; find . | "$1" cpio -o -H newc -R 0:0 >../initrd`
	_, err = debian.Output(ctx, dir, "sh", "-euc", pack, "sh", busybox, modulesName)
	return err
}

// job is the task of the guest, for its shell.
func (o *options) job() string {
	quoted := make([]string, len(o.command))
	for i, arg := range o.command {
		quoted[i] = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
	}
	return "cd '" + o.dir + "' || end 'error enter the folder of the command'\nset -- " + strings.Join(quoted, " ") + "\n"
}
