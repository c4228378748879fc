package image

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/vmapd/vmapd/cmd/internal/testbed/debian"
)

// merged are the folders which are links to those of the same name in /usr, as in Debian.
func merged() []string { return []string{"bin", "sbin", "lib", "lib64"} }

// folder is the root of an image, while it is made. What is written replaces what is there.
type folder string

func (f folder) path(name string) string { return filepath.Join(string(f), name) }

func (f folder) dir(name string, mode os.FileMode) error {
	return errors.Join(os.MkdirAll(f.path(name), 0o755), os.Chmod(f.path(name), mode))
}

func (f folder) file(name string, data []byte, mode os.FileMode) error {
	if err := errors.Join(f.dir(filepath.Dir(name), 0o755), os.RemoveAll(f.path(name))); err != nil {
		return err
	}
	return os.WriteFile(f.path(name), data, mode)
}

func (f folder) link(name, target string) error {
	if err := errors.Join(f.dir(filepath.Dir(name), 0o755), os.RemoveAll(f.path(name))); err != nil {
		return err
	}
	return os.Symlink(target, f.path(name))
}

// unpacked has the files of packages, and what Debian's install scripts would make.
func (f folder) unpacked(ctx context.Context, packages string) error {
	for _, m := range merged() {
		if err := errors.Join(f.dir("usr/"+m, 0o755), f.link(m, "usr/"+m)); err != nil {
			return err
		}
	}
	const copied = `tar -C "$1" -c . | tar -C "$2" -x --keep-directory-symlink`
	if _, err := debian.Output(ctx, packages, "bash", "-euo", "pipefail", "-c", copied, "bash", packages, string(f)); err != nil {
		return err
	}
	return errors.Join(
		f.dir("/tmp", os.ModeSticky|0o777),
		f.dir("/var/tmp", os.ModeSticky|0o777),
		f.dir("/run", 0o755),
		f.link("/var/run", "/run"),
		f.dir("/root", 0o700),
		f.dir("/usr/lib/modules", 0o755),
		f.file("/etc/passwd", []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"), 0o644),
		f.file("/etc/group", []byte("root:x:0:\nnogroup:x:65534:\n"), 0o644),
		f.file("/etc/nsswitch.conf", []byte("hosts: files dns\n"), 0o644),
	)
}

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
func (i Image) archive(ctx context.Context, root folder, work, target string) error {
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
