package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/cmd/internal/testbed/debian"
)

// An Image is a container image of one layer. What is named first wins: links, programs, texts,
// packages, busybox.
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

// Save writes the archive of an image into a folder and returns its path.
func (i Image) Save(ctx context.Context, cache debian.Cache, dir string) (string, error) {
	target := filepath.Join(dir, i.Name+".tar")
	f, err := os.Create(target)
	if err != nil {
		return "", err
	}
	if err := errors.Join(i.Write(ctx, cache, f), f.Close()); err != nil {
		return "", fmt.Errorf("write image %s: %w", i.Name, err)
	}
	return target, nil
}

// Write writes the archive of an image. It downloads packages that are not in the cache.
func (i Image) Write(ctx context.Context, cache debian.Cache, w io.Writer) error {
	names := i.Packages
	if i.BusyBox {
		names = append(slices.Clone(names), busyBox)
	}
	packages, err := cache.Packages(ctx, names)
	if err != nil {
		return err
	}
	var applets []string
	if i.BusyBox {
		list, err := debian.Output(ctx, packages, filepath.Join(packages, "bin/busybox"), "--list")
		if err != nil {
			return err
		}
		applets = strings.Fields(list)
	}
	return i.writeArchive(w, func(l *layer) error { return i.fill(l, packages, applets) })
}

func (i Image) fill(l *layer, packages string, applets []string) error {
	if packages != "" {
		if err := base(l); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(i.Links)) {
		if err := l.link(name, i.Links[name]); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(i.Programs)) {
		if err := l.program(name, i.Programs[name]); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(i.Texts)) {
		if err := l.text(name, i.Texts[name]); err != nil {
			return err
		}
	}
	if i.KeyPair != "" {
		if err := l.keyPair(i.KeyPair); err != nil {
			return err
		}
	}
	if packages != "" {
		if err := l.tree(packages); err != nil {
			return err
		}
	}
	for _, applet := range applets {
		if l.seen["usr/bin/"+applet] || l.seen["usr/sbin/"+applet] {
			continue
		}
		if err := l.link("/usr/bin/"+applet, "busybox"); err != nil {
			return err
		}
	}
	return nil
}

// base has the folders and files that programs expect, which Debian's install scripts would make.
func base(l *layer) error {
	return errors.Join(
		l.mergeUsr(),
		l.dir("/tmp", 0o1777),
		l.dir("/var/tmp", 0o1777),
		l.dir("/run", 0o755),
		l.link("/var/run", "/run"),
		l.dir("/root", 0o700),
		l.dir("/lib/modules", 0o755),
		l.text("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"),
		l.text("/etc/group", "root:x:0:\nnogroup:x:65534:\n"),
		l.text("/etc/nsswitch.conf", "hosts: files dns\n"),
	)
}
