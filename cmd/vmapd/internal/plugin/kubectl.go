package plugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
)

// Kubectl is the program, with flags such as --context for all requests.
type Kubectl struct{ Flags []string }

// Output runs kubectl for its output. Its errors are those that it prints.
func (k Kubectl) Output(ctx context.Context, args ...string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	err := k.run(ctx, args, &stdout, &stderr)
	if _, failed := errors.AsType[*exec.ExitError](err); failed {
		err = errors.New(strings.TrimSpace(stderr.String()))
	}
	return stdout.Bytes(), err
}

// Exec runs kubectl with the given streams. If that ran and failed, it returns the exit code.
func (k Kubectl) Exec(ctx context.Context, args []string, stdout, stderr io.Writer) (code int, err error) {
	err = k.run(ctx, args, stdout, stderr)
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		return max(1, failed.ExitCode()), nil
	}
	return 0, err
}

func (k Kubectl) run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	cmd := exec.CommandContext(ctx, "kubectl", append(append([]string{}, args[:1]...), append(k.Flags, args[1:]...)...)...)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	err := cmd.Run()
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("the program kubectl is needed: %w", err)
	}
	return err
}
