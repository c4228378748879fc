package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/blakesmith/ar"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

// unpack calls a function with each file of a package, in the form that deb(5) describes. Its install
// scripts are not run.
func unpack(deb string, each func(*tar.Header, io.Reader) error) error {
	f, err := os.Open(deb)
	if err != nil {
		return err
	}
	defer f.Close()
	members := ar.NewReader(f)
	for {
		m, err := members.Next()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("%s has no data.tar", deb)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", deb, err)
		}
		// Older writers end a name with a slash.
		name := strings.TrimSuffix(strings.TrimSpace(m.Name), "/")
		if !strings.HasPrefix(name, "data.tar") {
			continue
		}
		r, err := decompress(path.Ext(name), members)
		if err != nil {
			return fmt.Errorf("%s: %w", deb, err)
		}
		files := tar.NewReader(r)
		for {
			h, err := files.Next()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("%s: %w", deb, err)
			}
			if err := each(h, files); err != nil {
				return fmt.Errorf("%s: %s: %w", deb, h.Name, err)
			}
		}
	}
}

func decompress(form string, r io.Reader) (io.Reader, error) {
	switch form {
	case ".tar":
		return r, nil
	case ".gz":
		return gzip.NewReader(r)
	case ".xz":
		return xz.NewReader(r)
	case ".zst":
		return zstd.NewReader(r)
	}
	return nil, fmt.Errorf("compression %s is unknown", form)
}
