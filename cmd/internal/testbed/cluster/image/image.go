package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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

// busyBox is the package whose one program is linked to nothing.
const busyBox = "busybox-static"

// Save writes the archive of an image into a folder and returns its path. It downloads packages that are not in the cache.
func (i Image) Save(ctx context.Context, dir string) (string, error) {
	cache, err := debian.UserCache()
	if err != nil {
		return "", err
	}
	names := i.Packages
	if i.BusyBox {
		names = append(slices.Clone(names), busyBox)
	}
	packages, err := cache.Packages(ctx, names)
	if err != nil {
		return "", err
	}
	target := filepath.Join(dir, i.Name+".tar")
	if err := i.write(ctx, packages, dir, target); err != nil {
		return "", fmt.Errorf("write image %s: %w", i.Name, err)
	}
	return target, nil
}

// write writes the archive, by way of folders that it removes.
func (i Image) write(ctx context.Context, packages, dir, target string) error {
	root, err := os.MkdirTemp(dir, "root-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(root) }()
	work, err := os.MkdirTemp(dir, "archive-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	if err := i.fill(ctx, debian.Root(root), packages); err != nil {
		return err
	}
	return i.archive(ctx, debian.Root(root), work, target)
}

func (i Image) fill(ctx context.Context, root debian.Root, packages string) error {
	if packages != "" {
		if err := root.Add(ctx, packages); err != nil {
			return err
		}
	}
	if slices.Contains(i.Packages, "iptables") {
		if err := root.IPTables("nft"); err != nil {
			return err
		}
	}
	for name, target := range i.Links {
		if err := root.Link(name, target); err != nil {
			return err
		}
	}
	for name, source := range i.Programs {
		if err := root.Copy(ctx, name, source); err != nil {
			return err
		}
	}
	for name, text := range i.Texts {
		if err := root.File(name, text); err != nil {
			return err
		}
	}
	if i.KeyPair != "" {
		cert, key, err := certutil.GenerateSelfSignedCertKey("localhost", nil, nil)
		if err := errors.Join(err, root.File(i.KeyPair+".crt", string(cert)), root.File(i.KeyPair+".key", string(key))); err != nil {
			return err
		}
	}
	if !i.BusyBox {
		return nil
	}
	list, err := debian.Output(ctx, packages, filepath.Join(packages, "bin/busybox"), "--list")
	if err != nil {
		return err
	}
	for applet := range strings.FieldsSeq(list) {
		if exists(root.Path("usr/bin/"+applet)) || exists(root.Path("usr/sbin/"+applet)) {
			continue
		}
		if err := root.Link("usr/bin/"+applet, "busybox"); err != nil {
			return err
		}
	}
	return nil
}

// Build compiles commands of a module, whose folder is source, into a folder.
func Build(ctx context.Context, source, dir string, packages ...string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-trimpath", "-o", dir + "/"}, packages...)...)
	cmd.Dir, cmd.Env = source, append(os.Environ(), "CGO_ENABLED=0")
	return kube.Run(cmd)
}

func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}
