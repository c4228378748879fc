package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
)

// reproducible is GNU tar with options that make the same archive of the same files: all belong to root, and have the
// date that follows.
const reproducible = "tar --sort=name --format=gnu --owner=0 --group=0 --numeric-owner --mtime=@"

// shell runs a script of bash in a folder and returns what it prints.
func shell(ctx context.Context, dir, script string, args ...string) ([]byte, error) {
	const options = "umask 022\nexport LC_ALL=C\n"
	var stderr bytes.Buffer
	c := exec.CommandContext(ctx, "bash", append([]string{"-euo", "pipefail", "-c", options + script, "bash"}, args...)...)
	c.Dir, c.Stderr = dir, &stderr
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}
