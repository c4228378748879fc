package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
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
	dir     string // with the file initrd
	cpus    int
	timeout time.Duration
}

// run runs the machine until it powers off. It returns the command's exit code and the
// kernel's console output.
func (m machine) run(ctx context.Context, stdout io.Writer) (code int, console string, err error) {
	limited, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	// The ports of the guest are /dev/hvc0 and /dev/hvc1, in this order.
	qemu := debian.Command(limited, m.qemu, slices.Concat(m.args, []string{
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-accel", "tcg,thread=multi", "-smp", strconv.Itoa(m.cpus), "-m", "2048",
		"-kernel", m.image, "-initrd", "initrd",
		"-append", m.console + " loglevel=5 panic=-1 oops=panic mitigations=off",
		"-chardev", "file,id=console,path=console",
		"-chardev", "file,id=output,path=/dev/fd/1", "-chardev", "file,id=result,path=result",
		"-device", "virtio-serial", "-device", "virtconsole,chardev=output", "-device", "virtconsole,chardev=result",
	})...)
	var complaints strings.Builder
	qemu.Dir, qemu.Stderr = m.dir, &complaints
	qemu.Stdout = struct{ io.Writer }{stdout} // by a pipe: QEMU would empty a file
	runErr := qemu.Run()

	text, err := os.ReadFile(filepath.Join(m.dir, "console"))
	result, err2 := os.ReadFile(filepath.Join(m.dir, "result"))
	console = string(text)
	exit, hasExit := strings.CutPrefix(strings.TrimSpace(string(result)), "exit ")
	failure, hasFailed := strings.CutPrefix(strings.TrimSpace(string(result)), "error ")
	switch {
	case hasExit:
		code, err = strconv.Atoi(exit)
	case hasFailed:
		err = errors.New(failure)
	case ctx.Err() != nil:
		err = ctx.Err()
	case limited.Err() != nil:
		err = fmt.Errorf("%w after %v", errTimeLimit, m.timeout)
	case runErr != nil:
		err = fmt.Errorf("run %s: %w\n%s", m.qemu, runErr, strings.TrimSpace(complaints.String()))
	default:
		err = errors.Join(errors.New("the machine stopped before the command ended"), err, err2)
	}
	return code, console, err
}
