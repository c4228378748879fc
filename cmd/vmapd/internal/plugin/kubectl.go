package plugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
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
	err := explained(cmd.Run())
	if _, failed := errors.AsType[*exec.ExitError](err); failed && ctx.Err() == nil {
		err = errors.New(strings.TrimSpace(stderr.String()))
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
	err = explained(cmd.Run())
	if failed, ok := errors.AsType[*exec.ExitError](err); ok && ctx.Err() == nil {
		return max(1, failed.ExitCode()), nil
	}
	if ctx.Err() != nil {
		return 0, nil
	}
	return 0, err
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
	cmd := exec.CommandContext(ctx, "kubectl", append(append([]string{}, args[:1]...), append(k.Flags, args[1:]...)...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = endTime
	return cmd
}

func explained(err error) error {
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("the program kubectl is needed: %w", err)
	}
	return err
}
