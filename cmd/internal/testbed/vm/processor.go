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
			debian: "amd64", kernel: "linux-image-cloud-amd64", qemu: "qemu-system-x86_64", console: "console=ttyS0 no_timer_check",
			// A later processor ("max") has more to emulate: one scenario took 13 s of computing instead of
			// 8. The kernel's check of timers is for hardware, and fails if the host is busy meanwhile.
			args: []string{"-cpu", "Nehalem", "-device", "isa-serial,chardev=console"},
		},
		elf.EM_AARCH64: {
			debian: "arm64", kernel: "linux-image-cloud-arm64", qemu: "qemu-system-aarch64", console: "console=ttyAMA0",
			// Later processors authenticate pointers, which takes most of the time.
			args: []string{"-machine", "virt", "-cpu", "cortex-a72", "-serial", "chardev:console"},
		},
		elf.EM_S390: {
			debian: "s390x", kernel: "linux-image-s390x", qemu: "qemu-system-s390x", console: "console=ttyS1",
			args: []string{"-machine", "s390-ccw-virtio", "-cpu", "max", "-device", "sclpconsole,chardev=console"},
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
