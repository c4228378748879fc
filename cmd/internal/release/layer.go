package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// layer is of the files that a script makes in an empty folder.
func layer(ctx context.Context, date time.Time, script string, args ...string) (v1.Layer, error) {
	dir, err := os.MkdirTemp("", "vmapd-layer-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	data, err := shell(ctx, dir, script+"\n"+reproducible+fmt.Sprint(date.Unix())+" -c -- *", args...)
	if err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching,
	)
}

// programLayer has the program, and the name by which kube-proxy's DaemonSet starts it.
func programLayer(ctx context.Context, p program) (v1.Layer, error) {
	path, err := filepath.Abs(p.path)
	if err != nil {
		return nil, err
	}
	return layer(ctx, p.date, `install -D -m 755 "$1" usr/local/bin/vmapd
ln -s vmapd usr/local/bin/kube-proxy`, path)
}

// packagesLayer has the packages of the lock file. It is the same for all versions of vmapd with that file. Install
// scripts are not run: what they would make, and programs expect, is made here. The iptables of nf_tables has the plain
// names, as it has on Debian. What nobody reads in a container is left out; licences stay.
func packagesLayer(ctx context.Context, l lock, cache, arch string) (v1.Layer, error) {
	if len(l.packages[arch]) == 0 {
		return nil, fmt.Errorf("packages.lock has nothing for %s", arch)
	}
	var files []string
	for _, p := range l.packages[arch] {
		file, err := l.fetch(ctx, cache, p)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return layer(ctx, l.date, `mkdir -p usr/{bin,lib,lib64,sbin} usr/lib/modules run
ln -s usr/{bin,lib,lib64,sbin} .
mkdir -m 1777 tmp
for package; do
	dpkg-deb --fsys-tarfile "$package" | tar -xp --no-same-owner --keep-directory-symlink
done
rm -rf usr/share/{man,locale,info,lintian,bash-completion,zsh,initramfs-tools}
find usr/share/doc ! -type d ! -name copyright -delete
find usr/share/doc -type d -empty -delete
for name in {iptables,ip6tables}{,-save,-restore}; do
	ln -sf xtables-nft-multi usr/sbin/$name
done
mkdir -p etc
printf 'root:x:0:0:root:/:/sbin/nologin\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n' >etc/passwd
printf 'root:x:0:\nnogroup:x:65534:\n' >etc/group`, files...)
}
