package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/debian"
)

var errTimeLimit = errors.New("time limit reached")

// machine is an emulated machine.
type machine struct {
	kernel  string
	initrd  *os.File
	memory  int // MiB
	cpus    int
	timeout time.Duration
}

// The serial ports, in the order in which QEMU is told about them. The first is the
// kernel's console.
const (
	consolePort = "/dev/ttyS0"
	outputPort  = "/dev/ttyS1"
	resultPort  = "/dev/ttyS2"
)

// Prefixes of the line on the port for the result.
const (
	saysExit  = "exit "
	saysError = "error "
)

// run runs the machine until it powers off. It returns the command's exit code and the
// kernel's console output.
func (m machine) run(ctx context.Context, c cache, stdout io.Writer) (code int, console string, err error) {
	consoleFile, err := c.scratch()
	if err != nil {
		return 0, "", err
	}
	defer consoleFile.Close()
	resultFile, err := c.scratch()
	if err != nil {
		return 0, "", err
	}
	defer resultFile.Close()

	limited, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	qemu := debian.Command(limited, "qemu-system-x86_64",
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-accel", "tcg,thread=multi", "-cpu", "max,la57=off", // page tables of four levels are quicker to walk
		"-smp", strconv.Itoa(m.cpus), "-m", strconv.Itoa(m.memory),
		"-kernel", m.kernel, "-initrd", "/dev/fd/3",
		"-append", "console=ttyS0 loglevel=5 panic=-1 oops=panic mitigations=off",
		"-serial", "file:/dev/fd/4", "-serial", "stdio", "-serial", "file:/dev/fd/5",
	)
	qemu.ExtraFiles = []*os.File{m.initrd, consoleFile, resultFile}
	qemu.Stdout = io.MultiWriter(stdout) // by way of a pipe: QEMU makes its own standard output non-blocking
	var complaints strings.Builder
	qemu.Stderr = &complaints
	runErr := qemu.Run()

	text, err := io.ReadAll(consoleFile)
	result, err2 := io.ReadAll(resultFile)
	if err := errors.Join(err, err2); err != nil {
		return 0, "", fmt.Errorf("read what the machine wrote: %w", err)
	}
	console = string(text)
	switch said := strings.TrimSpace(string(result)); {
	case strings.HasPrefix(said, saysExit):
		code, err = strconv.Atoi(said[len(saysExit):])
	case strings.HasPrefix(said, saysError):
		err = errors.New(said[len(saysError):])
	case ctx.Err() != nil:
		err = ctx.Err()
	case limited.Err() != nil:
		err = fmt.Errorf("%w after %v", errTimeLimit, m.timeout)
	case runErr != nil:
		err = fmt.Errorf("run qemu-system-x86_64: %w\n%s", runErr, strings.TrimSpace(complaints.String()))
	default:
		err = errors.New("the machine stopped before the command ended")
	}
	return code, console, err
}
