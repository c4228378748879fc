package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
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
	indexes, err := partial.FindIndexes(outer, func(v1.Descriptor) bool { return true })
	if err != nil {
		return nil, err
	}
	for _, index := range indexes {
		images, err := partial.FindImages(index, match.Platforms(v1.Platform{OS: "linux", Architecture: arch}))
		if err != nil {
			return nil, err
		}
		if len(images) > 0 {
			return images[0], nil
		}
	}
	return nil, fmt.Errorf("%s has no image for %s", folder, arch)
}

// unpackImage writes what a container of an image has into a folder, which must not exist: its files, and the image's
// configuration as it is (https://github.com/opencontainers/image-spec/blob/main/config.md).
func unpackImage(ctx context.Context, image v1.Image, folder string) error {
	config, err := image.RawConfigFile()
	if err != nil {
		return err
	}
	root := filepath.Join(folder, unpackedRoot)
	if err := errors.Join(
		os.Mkdir(folder, 0o755), os.Mkdir(root, 0o755), os.WriteFile(filepath.Join(folder, unpackedConfig), config, 0o644),
	); err != nil {
		return err
	}
	files := mutate.Extract(image)
	defer files.Close()
	tar := exec.CommandContext(ctx, "tar", "-x", "--no-same-owner", "-C", root)
	tar.Stdin = files
	if out, err := tar.CombinedOutput(); err != nil {
		return fmt.Errorf("unpack the image: %w: %s", err, out)
	}
	return nil
}
