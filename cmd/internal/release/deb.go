package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
)

// unpack calls a function with each file of a package, by Debian's own program. Its install scripts are not run.
func unpack(ctx context.Context, deb string, each func(*tar.Header, io.Reader) error) error {
	var stderr bytes.Buffer
	c := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", deb)
	c.Stderr = &stderr
	data, err := c.Output()
	if err != nil {
		return fmt.Errorf("dpkg-deb: %s: %w: %s", deb, err, &stderr)
	}
	for files := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = each(h, files)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", deb, err)
		}
	}
}
