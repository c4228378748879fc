package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/debian"
)

var errTimeLimit = errors.New("time limit reached")

// machine is an emulated machine.
type machine struct {
	processor
	image   string // of the kernel
	initrd  *os.File
	cpus    int
	timeout time.Duration
}

// The ports of the guest, in the order in which QEMU is told about them. The kernel's console is
// another one.
const (
	outputPort = "/dev/hvc0"
	resultPort = "/dev/hvc1"
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

	outputFile, err := c.scratch()
	if err != nil {
		return 0, "", err
	}
	defer outputFile.Close()

	limited, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	qemu := debian.Command(limited, m.qemu, slices.Concat(m.args, []string{
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-accel", "tcg,thread=multi", "-smp", strconv.Itoa(m.cpus), "-m", "2048",
		"-kernel", m.image, "-initrd", "/dev/fd/3",
		"-append", m.console + " loglevel=5 panic=-1 oops=panic mitigations=off",
		"-chardev", "file,id=console,path=/dev/fd/4",
		"-chardev", "file,id=output,path=/dev/fd/5", "-chardev", "file,id=result,path=/dev/fd/6",
		"-device", "virtio-serial", "-device", "virtconsole,chardev=output", "-device", "virtconsole,chardev=result",
	})...)
	qemu.ExtraFiles = []*os.File{m.initrd, consoleFile, outputFile, resultFile}
	var complaints strings.Builder
	qemu.Stderr = &complaints
	runErr := qemu.Start()
	if runErr == nil {
		ended := make(chan struct{})
		go func() { runErr = qemu.Wait(); close(ended) }()
		err = follow(stdout, outputFile, ended)
	}

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
		err = fmt.Errorf("run %s: %w\n%s", m.qemu, runErr, strings.TrimSpace(complaints.String()))
	default:
		err = errors.New("the machine stopped before the command ended")
	}
	return code, console, err
}

// follow copies the data that is written to a file, until its writer has ended.
func follow(to io.Writer, from *os.File, ended <-chan struct{}) error {
	for {
		last := false
		select {
		case <-ended:
			last = true
		case <-time.After(100 * time.Millisecond):
		}
		if _, err := io.Copy(to, from); err != nil || last {
			return err
		}
	}
}
