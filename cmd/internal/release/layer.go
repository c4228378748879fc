package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// layerWriter writes files that belong to root. Folders are made as needed, with a date.
type layerWriter struct {
	buffer bytes.Buffer
	tar    *tar.Writer
	date   time.Time
	seen   map[string]bool
}

func newLayerWriter(date time.Time) *layerWriter {
	l := &layerWriter{date: date, seen: map[string]bool{".": true}}
	l.tar = tar.NewWriter(&l.buffer)
	return l
}

// add writes an entry, unless there is one of that name.
func (l *layerWriter) add(h *tar.Header, content io.Reader) error {
	name := inUsr(h.Name)
	if l.seen[name] {
		return nil
	}
	if parent := path.Dir(name); !l.seen[parent] {
		if err := l.add(&tar.Header{Typeflag: tar.TypeDir, Name: parent, Mode: 0o755, ModTime: l.date}, nil); err != nil {
			return err
		}
	}
	l.seen[name] = true
	if h.Typeflag == tar.TypeDir {
		name += "/"
	}
	// Of the header, only this is taken: no names of users, no times of access.
	w := &tar.Header{
		Typeflag: h.Typeflag, Name: name, Linkname: h.Linkname, Mode: h.Mode, Size: h.Size,
		ModTime: h.ModTime.UTC().Truncate(time.Second), Format: tar.FormatPAX,
	}
	if h.Typeflag == tar.TypeLink {
		w.Linkname = inUsr(h.Linkname)
	}
	if err := l.tar.WriteHeader(w); err != nil || h.Typeflag != tar.TypeReg {
		return err
	}
	_, err := io.Copy(l.tar, content)
	return err
}

func (l *layerWriter) link(name, target string) error {
	return l.add(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777, ModTime: l.date}, nil)
}

func (l *layerWriter) text(name, content string) error {
	return l.add(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(content)), ModTime: l.date}, strings.NewReader(content))
}

// layer ends the writing.
func (l *layerWriter) layer() (v1.Layer, error) {
	if err := l.tar.Close(); err != nil {
		return nil, err
	}
	data := l.buffer.Bytes()
	return tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching,
	)
}

// merged are the folders that are links to those of the same name in /usr, as in Debian.
func merged() []string { return []string{"bin", "lib", "lib64", "sbin"} }

func inUsr(name string) string {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	if first, _, _ := strings.Cut(name, "/"); slices.Contains(merged(), first) {
		return "usr/" + name
	}
	if name == "" {
		return "."
	}
	return name
}

// programLayer has the program, and the name by which kube-proxy's DaemonSet starts it.
func programLayer(p program) (v1.Layer, error) {
	data, err := os.ReadFile(p.path)
	if err != nil {
		return nil, err
	}
	l := newLayerWriter(p.date)
	if err := errors.Join(
		l.add(&tar.Header{Typeflag: tar.TypeReg, Name: "usr/local/bin/vmapd", Mode: 0o755, Size: int64(len(data)), ModTime: p.date}, bytes.NewReader(data)),
		l.link("usr/local/bin/kube-proxy", "vmapd"),
	); err != nil {
		return nil, err
	}
	return l.layer()
}

// packagesLayer has the packages of the lock file. It is the same for all versions of vmapd with that file.
func packagesLayer(ctx context.Context, l lock, cache, arch string) (v1.Layer, error) {
	if len(l.packages[arch]) == 0 {
		return nil, fmt.Errorf("packages.lock has nothing for %s", arch)
	}
	w := newLayerWriter(l.date)
	if err := base(w); err != nil {
		return nil, err
	}
	for _, p := range l.packages[arch] {
		file, err := l.fetch(ctx, cache, p)
		if err != nil {
			return nil, err
		}
		if err := unpack(ctx, file, func(h *tar.Header, content io.Reader) error {
			if useless(h.Name) {
				return nil
			}
			return w.add(h, content)
		}); err != nil {
			return nil, err
		}
	}
	return w.layer()
}

// useless are files that nobody reads in a container. Licences stay.
func useless(name string) bool {
	name = inUsr(name)
	if strings.HasPrefix(name, "usr/share/doc/") {
		return path.Base(name) != "copyright"
	}
	for _, folder := range []string{"man", "locale", "info", "lintian", "bash-completion", "zsh", "initramfs-tools"} {
		if strings.HasPrefix(name+"/", "usr/share/"+folder+"/") {
			return true
		}
	}
	return false
}

// base has what programs expect, and what Debian's install scripts would make: the iptables of
// nf_tables has the plain names, as it has on Debian.
func base(l *layerWriter) error {
	for _, m := range merged() {
		if err := l.add(&tar.Header{Typeflag: tar.TypeDir, Name: "usr/" + m, Mode: 0o755, ModTime: l.date}, nil); err != nil {
			return err
		}
		l.seen[m] = true
		if err := l.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: m, Linkname: "usr/" + m, Mode: 0o777, ModTime: l.date, Format: tar.FormatPAX}); err != nil {
			return err
		}
	}
	for _, dir := range []struct {
		name string
		mode int64
	}{{"tmp", 0o1777}, {"run", 0o755}, {"lib/modules", 0o755}} {
		if err := l.add(&tar.Header{Typeflag: tar.TypeDir, Name: dir.name, Mode: dir.mode, ModTime: l.date}, nil); err != nil {
			return err
		}
	}
	for _, name := range []string{"iptables", "ip6tables"} {
		for _, suffix := range []string{"", "-save", "-restore"} {
			if err := l.link("usr/sbin/"+name+suffix, "xtables-nft-multi"); err != nil {
				return err
			}
		}
	}
	return errors.Join(
		l.text("etc/passwd", "root:x:0:0:root:/:/sbin/nologin\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n"),
		l.text("etc/group", "root:x:0:\nnogroup:x:65534:\n"),
	)
}
