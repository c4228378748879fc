package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/vmapd/vmapd/cmd/internal/testbed/debian"
)

// getKernel returns a folder with vmlinuz and modules of a kernel package.
func getKernel(ctx context.Context, a debian.Archive, name string) (string, error) {
	return a.Folder(ctx, name, func(dir string) error {
		if err := a.Update(ctx); err != nil {
			return err
		}
		needed, err := a.Apt(ctx, dir, "apt-cache", "depends", "--important", "--recurse", name)
		if err != nil {
			return err
		}
		download := append([]string{"-qq", "download"}, kernelPackages(needed)...)
		if _, err := a.Apt(ctx, dir, "apt-get", download...); err != nil {
			return err
		}
		if err := debian.Unpack(ctx, dir, "root"); err != nil {
			return err
		}
		// From 6.12 on modules are packed; the kernel could unpack them itself, but slowly.
		const arrange = `shopt -s nullglob
mv -T root/boot/vmlinuz-* root/usr/lib/modules/*/vmlinuz vmlinuz
mv -T root/lib/modules/* root/usr/lib/modules/* modules
rm -r root
find modules -name '*.ko.xz' -exec xz --decompress {} +`
		_, err = debian.Output(ctx, dir, "bash", "-euc", arrange)
		return err
	})
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

// processor is a kind of machine.
type processor struct {
	kernel  string // package with a kernel for it
	qemu    string // program
	args    []string
	console string // the kernel's option that names its console
}

// processorOf returns the processor of a name of Go's. There are those that have been tried.
func processorOf(name string) (processor, error) {
	switch name {
	case "amd64":
		return processor{
			kernel: "linux-image-cloud-amd64", qemu: "qemu-system-x86_64", console: "console=ttyS0 no_timer_check",
			// A later processor ("max") has more to emulate: one scenario took 13 s of computing instead of
			// 8. The kernel's check of timers is for hardware, and fails if the host is busy meanwhile.
			args: []string{"-cpu", "Nehalem", "-device", "isa-serial,chardev=console"},
		}, nil
	case "arm64":
		return processor{
			kernel: "linux-image-cloud-arm64", qemu: "qemu-system-aarch64", console: "console=ttyAMA0",
			// Later processors authenticate pointers, which takes most of the time.
			args: []string{"-machine", "virt", "-cpu", "cortex-a72", "-serial", "chardev:console"},
		}, nil
	case "s390x":
		return processor{
			kernel: "linux-image-s390x", qemu: "qemu-system-s390x", console: "console=ttyS1",
			args: []string{"-machine", "s390-ccw-virtio", "-cpu", "max", "-device", "sclpconsole,chardev=console"},
		}, nil
	}
	return processor{}, fmt.Errorf("--processor %s: want amd64, arm64 or s390x", name)
}
