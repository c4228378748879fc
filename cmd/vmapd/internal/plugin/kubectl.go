package plugin

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Kubectl is the program, with flags such as --context for all requests.
type Kubectl struct{ Flags []string }

// endTime is how long a command in a pod may take to end after its input has ended.
const endTime = 3 * time.Second

// Output runs kubectl for its output. Its errors are those that it prints.
func (k Kubectl) Output(ctx context.Context, args ...string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd := k.command(ctx, args)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	code, err := run(cmd)
	if code != 0 {
		err = cmp.Or(ctx.Err(), errors.New(strings.TrimSpace(stderr.String())))
	}
	return stdout.Bytes(), err
}

// Exec runs kubectl with the given streams. If that ran and failed, it returns the exit code. When ctx ends, the
// input ends: what runs in the pod ends by that, and kubectl with it.
func (k Kubectl) Exec(ctx context.Context, args []string, stdout, stderr io.Writer) (code int, err error) {
	cmd := k.command(ctx, args)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	input, err := cmd.StdinPipe()
	if err != nil {
		return 0, err
	}
	cmd.Cancel = input.Close
	if code, err = run(cmd); ctx.Err() != nil {
		return 0, nil //nolint:nilerr // it is to end
	}
	return code, err
}

// Dial connects with a command in a pod.
func (k Kubectl) Dial(args []string) net.Conn {
	ours, theirs := net.Pipe()
	cmd := k.command(context.Background(), args)
	cmd.Stdin, cmd.Stdout = theirs, theirs
	go func() {
		_ = cmd.Run() // its end is that of the connection
		_ = theirs.Close()
	}()
	return ours
}

// command is kubectl in a process group of its own: Ctrl-C is for this process, which ends kubectl in order.
func (k Kubectl) command(ctx context.Context, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "kubectl", slices.Concat(args[:1], k.Flags, args[1:])...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = endTime
	return cmd
}

// run returns the exit code of a command that ran, or why it did not.
func run(cmd *exec.Cmd) (code int, err error) {
	err = cmd.Run()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		return max(1, failed.ExitCode()), nil
	}
	if errors.Is(err, exec.ErrNotFound) {
		err = fmt.Errorf("the program kubectl is needed: %w", err)
	}
	return 0, err
}
