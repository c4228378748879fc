package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	certutil "k8s.io/client-go/util/cert"

	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/kube"
	"github.com/vmapd/vmapd/cmd/internal/testbed/debian"
)

// An Image is a container image of one layer. Links, programs and texts take the place of files of packages.
type Image struct {
	Name     string            // of the archive, without ".tar"
	Tags     []string          // references, with registry and tag
	Programs map[string]string // path in the container to file of the host
	Links    map[string]string // path in the container to target
	Texts    map[string]string // path in the container to content
	Packages []string          // of Debian's
	BusyBox  bool              // has busybox, under the name of each of its applets that is missing
	// KeyPair is a path in the container without ".crt" and ".key": those of a TLS server, which is
	// "localhost" and trusted by nobody.
	KeyPair    string
	Entrypoint []string
	Command    []string // the arguments of a container that names none
}

// Save writes the archive of an image into a folder and returns its path. It downloads packages that are not cached.
func (i Image) Save(ctx context.Context, dir string) (string, error) {
	names := i.Packages
	if i.BusyBox {
		names = append(slices.Clone(names), "busybox-static")
	}
	archive, err := debian.Open(runtime.GOARCH, debian.Suite)
	if err != nil {
		return "", err
	}
	packages, err := archive.Packages(ctx, names...)
	if err != nil {
		return "", err
	}
	target := filepath.Join(dir, i.Name+".tar")
	if err := i.write(ctx, packages, dir, target); err != nil {
		return "", fmt.Errorf("write image %s: %w", i.Name, err)
	}
	return target, nil
}

// write writes the archive, from a folder that it makes and removes.
func (i Image) write(ctx context.Context, packages, dir, target string) error {
	work, err := os.MkdirTemp(dir, "image-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	if err := i.fill(ctx, debian.Root(filepath.Join(work, "root")), packages); err != nil {
		return err
	}
	return i.archive(ctx, work, target)
}

// fill makes the root folder.
func (i Image) fill(ctx context.Context, root debian.Root, packages string) (err error) {
	if err := os.Mkdir(string(root), 0o755); err != nil {
		return err
	}
	if packages != "" {
		err = root.Add(ctx, packages)
	}
	if slices.Contains(i.Packages, "iptables") {
		err = errors.Join(err, root.IPTables("nft"))
	}
	for name, target := range i.Links {
		err = errors.Join(err, root.Link(name, target))
	}
	for name, source := range i.Programs {
		err = errors.Join(err, root.Copy(ctx, name, source))
	}
	for name, text := range i.Texts {
		err = errors.Join(err, root.File(name, text))
	}
	if i.KeyPair != "" {
		cert, key, certErr := certutil.GenerateSelfSignedCertKey("localhost", nil, nil)
		err = errors.Join(err, certErr, root.File(i.KeyPair+".crt", string(cert)), root.File(i.KeyPair+".key", string(key)))
	}
	if !i.BusyBox || err != nil {
		return err
	}
	const link = `for applet in $("$1/bin/busybox" --list); do
	[ -e "usr/sbin/$applet" ] || [ -L "usr/sbin/$applet" ] || ln -s busybox "usr/bin/$applet" 2>/dev/null || true
done`
	_, err = debian.Output(ctx, string(root), "sh", "-euc", link, "sh", packages)
	return err
}

// archive writes an image of one layer in the format of "docker save", which
// https://github.com/moby/docker-image-spec describes and containerd imports. All files belong to root there.
func (i Image) archive(ctx context.Context, work, target string) error {
	const tar = "tar --owner=0 --group=0 --numeric-owner -cf "
	if _, err := debian.Output(ctx, filepath.Join(work, "root"), "sh", "-c", tar+"../layer.tar -- *"); err != nil {
		return err
	}
	sum, err := debian.Output(ctx, work, "sha256sum", "layer.tar")
	if err != nil {
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
			"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + strings.Fields(sum)[0]}},
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
	_, err = debian.Output(ctx, work, "sh", "-c", tar+`"$1" *.json layer.tar`, "sh", target)
	return err
}

// Build compiles commands of the module in the folder source into another folder.
func Build(ctx context.Context, source, dir string, packages ...string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-trimpath", "-o", dir + "/"}, packages...)...)
	cmd.Dir, cmd.Env = source, append(os.Environ(), "CGO_ENABLED=0")
	return kube.Run(cmd)
}
