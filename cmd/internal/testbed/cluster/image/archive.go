package image

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/vmapd/vmapd/cmd/internal/testbed/debian"
)

// pack writes an archive of what is in a folder, which belongs to root there.
func pack(ctx context.Context, dir, archive string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	args := []string{"--owner=0", "--group=0", "--numeric-owner", "-cf", archive, "--"}
	for _, e := range entries {
		args = append(args, e.Name())
	}
	_, err = debian.Output(ctx, dir, "tar", args...)
	return err
}

// archive writes an image of one layer in the format of "docker save", which
// https://github.com/moby/docker-image-spec describes and containerd imports.
func (i Image) archive(ctx context.Context, root debian.Root, work, target string) error {
	layer := filepath.Join(work, "layer.tar")
	if err := pack(ctx, string(root), layer); err != nil {
		return err
	}
	f, err := os.Open(layer)
	if err != nil {
		return err
	}
	defer f.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return err
	}
	for name, value := range map[string]any{
		"config.json": map[string]any{
			"architecture": runtime.GOARCH,
			"os":           "linux",
			"config": map[string]any{
				"Entrypoint": i.Entrypoint,
				"Cmd":        i.Command,
				"Env":        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
			},
			"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", hash.Sum(nil))}},
		},
		"manifest.json": []any{map[string]any{"Config": "config.json", "RepoTags": i.Tags, "Layers": []string{"layer.tar"}}},
	} {
		data, err := json.Marshal(value)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(work, name), data, 0o644); err != nil {
			return err
		}
	}
	return pack(ctx, work, target)
}
