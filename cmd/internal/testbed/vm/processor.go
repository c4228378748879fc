package main

import (
	"debug/elf"
	"errors"
	"fmt"
)

// processor is a kind of machine.
type processor struct {
	debian  string // Debian's name of the architecture
	kernel  string // package with a kernel for it
	qemu    string // program
	args    []string
	console string // the kernel's option that names its console
}

// processors are those that have been tried.
func processors() map[elf.Machine]processor {
	return map[elf.Machine]processor{
		elf.EM_X86_64: {
			"amd64", "linux-image-cloud-amd64", "qemu-system-x86_64",
			// Page tables of four levels are quicker to walk.
			[]string{"-cpu", "max,la57=off", "-device", "isa-serial,chardev=console"}, "console=ttyS0",
		},
		elf.EM_AARCH64: {
			"arm64", "linux-image-cloud-arm64", "qemu-system-aarch64",
			// Later processors authenticate pointers, which takes most of the time.
			[]string{"-machine", "virt", "-cpu", "cortex-a72", "-serial", "chardev:console"}, "console=ttyAMA0",
		},
		elf.EM_S390: {
			"s390x", "linux-image-s390x", "qemu-system-s390x",
			[]string{"-machine", "s390-ccw-virtio", "-cpu", "max", "-device", "sclpconsole,chardev=console"}, "console=ttyS1",
		},
	}
}

// processorOf returns the processor that runs a static program.
func processorOf(file string) (processor, error) {
	f, err := elf.Open(file)
	if err != nil {
		return processor{}, err
	}
	defer func() { _ = f.Close() }()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return processor{}, errors.New("the program is not static, and a guest has no libraries: build it with CGO_ENABLED=0")
		}
	}
	p, ok := processors()[f.Machine]
	if !ok {
		return processor{}, fmt.Errorf("no machine is known for processor %v", f.Machine)
	}
	return p, nil
}

// consoleModules are the modules that the guest's ports need.
func consoleModules(c catalog) (needed []string) {
	for _, name := range []string{"virtio_pci", "virtio_console"} {
		if _, ok := c[name]; ok {
			needed = append(needed, name)
		}
	}
	return needed
}
