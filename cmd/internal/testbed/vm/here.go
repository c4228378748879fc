package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/vmapd/vmapd/cmd/internal/testbed/debian"
)

// wrap writes a script that starts the program $2 of the packages in $1, by the dynamic linker of its own C library.
const wrap = `linker=$(ls "$1"/{usr/,}lib/*/ld*.so.[12] 2>/dev/null | head -n 1)
file=$(ls "$1"/{usr/,}{s,}bin/"$2" 2>/dev/null | head -n 1)
test -n "$linker" -a -n "$file"
triplet=$(basename "$(dirname "$linker")")
path=$1/usr/lib/$triplet:$1/lib/$triplet
printf '#!/bin/sh\nexec "%s" --library-path "%s" "%s" "$@"\n' "$linker" "$path" "$file" >"$2"
chmod +x "$2"`

// runHere runs the command on this machine, where a program is that of the packages, with the
// libraries that it was built for.
func (o *options) runHere(ctx context.Context, packages string, stdout, stderr io.Writer) (int, error) {
	dir, err := os.MkdirTemp("", "vm-here-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if _, err := debian.Output(ctx, dir, "bash", "-euc", wrap, "bash", packages, o.here); err != nil {
		return 0, fmt.Errorf("find %s in packages %s: %w", o.here, strings.Join(o.packages, ", "), err)
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
