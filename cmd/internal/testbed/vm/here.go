package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/vmapd/vmapd/cmd/internal/testbed/debian"
)

// runHere runs the command on this machine, where a program is that of the packages, with the
// libraries that it was built for.
func (o *options) runHere(ctx context.Context, packages string, stdout, stderr io.Writer) (int, error) {
	dir, err := os.MkdirTemp("", "vm-here-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	script, err := wrapper(packages, o.here)
	if err != nil {
		return 0, fmt.Errorf("find %s in packages %s: %w", o.here, strings.Join(o.packages, ", "), err)
	}
	if err := os.WriteFile(filepath.Join(dir, o.here), []byte(script), 0o755); err != nil {
		return 0, err
	}
	limited, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	c := debian.Command(limited, o.command[0], o.command[1:]...)
	c.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	c.Stdout, c.Stderr = stdout, stderr
	err = c.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.Exited() {
		return exit.ExitCode(), nil
	}
	if limited.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w after %v", errTimeLimit, o.timeout)
	}
	return 0, err
}

// wrapper starts a program by the dynamic linker of its own C library.
func wrapper(root, program string) (string, error) {
	one := func(patterns ...string) (string, error) {
		for _, p := range patterns {
			if found, err := filepath.Glob(filepath.Join(root, p)); err != nil || len(found) > 0 {
				return strings.Join(found[:min(1, len(found))], ""), err
			}
		}
		return "", fmt.Errorf("no %s: %w", strings.Join(patterns, ", "), os.ErrNotExist)
	}
	linker, err := one("usr/lib/*/ld*.so.[12]", "lib/*/ld*.so.[12]")
	if err != nil {
		return "", err
	}
	file, err := one("usr/sbin/"+program, "sbin/"+program, "usr/bin/"+program, "bin/"+program)
	if err != nil {
		return "", err
	}
	triplet := filepath.Base(filepath.Dir(linker))
	libraries := filepath.Join(root, "usr/lib", triplet) + ":" + filepath.Join(root, "lib", triplet)
	return fmt.Sprintf("#!/bin/sh\nexec '%s' --library-path '%s' '%s' \"$@\"\n", linker, libraries, file), nil
}
