package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// Names in a folder that unpackImage writes.
const (
	unpackedRoot   = "root"
	unpackedConfig = "config.json"
)

// imageOf returns the image for one processor of a layout that write has written.
func imageOf(folder, arch string) (v1.Image, error) {
	outer, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		return nil, err
	}
	names, err := outer.IndexManifest()
	if err != nil {
		return nil, err
	}
	if len(names.Manifests) != 1 {
		return nil, fmt.Errorf("%s: index.json has %d entries, want the one index of the processors", folder, len(names.Manifests))
	}
	index, err := outer.ImageIndex(names.Manifests[0].Digest)
	if err != nil {
		return nil, err
	}
	images, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	for _, d := range images.Manifests {
		if d.Platform != nil && d.Platform.Architecture == arch {
			return index.Image(d.Digest)
		}
	}
	return nil, fmt.Errorf("%s has no image for %s", folder, arch)
}

// unpackImage writes what a container of an image has into a folder, which must not exist: its files, and the image's
// configuration as it is (https://github.com/opencontainers/image-spec/blob/main/config.md).
func unpackImage(image v1.Image, folder string) error {
	config, err := image.RawConfigFile()
	if err != nil {
		return err
	}
	if err := os.Mkdir(folder, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, unpackedConfig), config, 0o644); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(folder, unpackedRoot), 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(filepath.Join(folder, unpackedRoot))
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // nothing can be done about it
	files := mutate.Extract(image)
	defer files.Close()
	for r := tar.NewReader(files); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := unpackEntry(root, h, r); err != nil {
			return fmt.Errorf("unpack %s: %w", h.Name, err)
		}
	}
}

func unpackEntry(root *os.Root, h *tar.Header, content io.Reader) error {
	name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(name, 0o755)
	case tar.TypeSymlink:
		return root.Symlink(h.Linkname, name)
	case tar.TypeLink:
		return root.Link(strings.TrimPrefix(path.Clean("/"+h.Linkname), "/"), name)
	case tar.TypeReg:
		f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, h.FileInfo().Mode().Perm())
		if err != nil {
			return err
		}
		_, err = io.Copy(f, content)
		return errors.Join(err, f.Close())
	default:
		return fmt.Errorf("an entry of type %q", h.Typeflag)
	}
}
