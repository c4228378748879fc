package image

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// layer writes the files of an image. Names are paths in the container. /bin, /sbin and /lib are
// links into /usr, as in Debian, and names are written accordingly; folders are made as
// needed. A second file of the same name is left out.
type layer struct {
	w    *tar.Writer
	seen map[string]bool
}

func newLayer(w io.Writer) *layer {
	return &layer{w: tar.NewWriter(w), seen: map[string]bool{".": true}}
}

// merged are the folders which are links to those of the same name in /usr.
func merged() []string { return []string{"bin", "sbin", "lib", "lib64"} }

func inLayer(name string) string {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	if first, _, _ := strings.Cut(name, "/"); slices.Contains(merged(), first) {
		return "usr/" + name
	}
	if name == "" {
		return "."
	}
	return name
}

func (l *layer) dir(name string, mode int64) error {
	return l.entry(&tar.Header{Typeflag: tar.TypeDir, Name: inLayer(name), Mode: mode}, nil)
}

func (l *layer) text(name, content string) error {
	return l.entry(&tar.Header{Typeflag: tar.TypeReg, Name: inLayer(name), Mode: 0o644, Size: int64(len(content))}, strings.NewReader(content))
}

func (l *layer) link(name, target string) error {
	return l.entry(&tar.Header{Typeflag: tar.TypeSymlink, Name: inLayer(name), Linkname: target, Mode: 0o777}, nil)
}

// mergeUsr makes the links.
func (l *layer) mergeUsr() error {
	for _, m := range merged() {
		if err := errors.Join(
			l.dir("/usr/"+m, 0o755),
			l.entry(&tar.Header{Typeflag: tar.TypeSymlink, Name: m, Linkname: "usr/" + m, Mode: 0o777}, nil),
		); err != nil {
			return err
		}
	}
	return nil
}

// program adds a file of the host, as a program.
func (l *layer) program(name, source string) error {
	f, err := os.Open(source)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return l.entry(&tar.Header{Typeflag: tar.TypeReg, Name: inLayer(name), Mode: 0o755, Size: info.Size()}, f)
}

// tree adds what is in a folder of the host.
func (l *layer) tree(source string) error {
	return filepath.WalkDir(source, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(source, p)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch mode := info.Mode(); {
		case mode.IsDir():
			return l.dir(name, int64(mode.Perm()))
		case mode&fs.ModeSymlink != 0:
			target, err := os.Readlink(p)
			if err != nil {
				return err
			}
			return l.link(name, target)
		case mode.IsRegular():
			f, err := os.Open(p)
			if err != nil {
				return err
			}
			defer f.Close()
			return l.entry(&tar.Header{Typeflag: tar.TypeReg, Name: inLayer(name), Mode: int64(mode.Perm()), Size: info.Size()}, f)
		default:
			return fmt.Errorf("%s is neither file, folder nor link", p)
		}
	})
}

// entry writes one entry, which belongs to root.
func (l *layer) entry(h *tar.Header, content io.Reader) error {
	if l.seen[h.Name] {
		return nil
	}
	if parent := path.Dir(h.Name); !l.seen[parent] {
		if err := l.dir("/"+parent, 0o755); err != nil {
			return err
		}
	}
	l.seen[h.Name] = true
	if err := l.w.WriteHeader(h); err != nil {
		return err
	}
	if content == nil {
		return nil
	}
	if _, err := io.CopyN(l.w, content, h.Size); err != nil {
		return fmt.Errorf("copy %s: %w", h.Name, err)
	}
	return nil
}

// writeArchive writes an image of one layer in the format of "docker save", which
// https://github.com/moby/docker-image-spec describes and containerd imports.
func (i Image) writeArchive(w io.Writer, fill func(*layer) error) error {
	scratch, err := os.CreateTemp("", "layer-")
	if err != nil {
		return err
	}
	defer scratch.Close()
	if err := os.Remove(scratch.Name()); err != nil {
		return err
	}
	hash := sha256.New()
	l := newLayer(io.MultiWriter(scratch, hash))
	if err := errors.Join(fill(l), l.w.Close()); err != nil {
		return err
	}
	size, err := scratch.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	if _, err := scratch.Seek(0, io.SeekStart); err != nil {
		return err
	}
	id := hex.EncodeToString(hash.Sum(nil))
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config": map[string]any{
			"Entrypoint": i.Entrypoint,
			"Cmd":        i.Command,
			"Env":        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + id}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]any{map[string]any{
		"Config": "config.json", "RepoTags": i.Tags, "Layers": []string{"layer.tar"},
	}})
	if err != nil {
		return err
	}
	archive := tar.NewWriter(w)
	add := func(name string, size int64, content io.Reader) error {
		if err := archive.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: size}); err != nil {
			return err
		}
		_, err := io.CopyN(archive, content, size)
		return err
	}
	return errors.Join(
		add("manifest.json", int64(len(manifest)), strings.NewReader(string(manifest))),
		add("config.json", int64(len(config)), strings.NewReader(string(config))),
		add("layer.tar", size, scratch),
		archive.Close(),
	)
}
