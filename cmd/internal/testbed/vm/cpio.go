package main

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// archive writes an initramfs: a cpio archive in the format "newc" (the kernel's
// Documentation/driver-api/early-userspace/buffer-format.rst). All belongs to root.
//
// Names are paths of the guest. /bin, /sbin and /lib are links into /usr, as in Debian,
// and names are written accordingly; folders are made as needed. A second file of the same name
// is left out.
type archive struct {
	w    *bufio.Writer
	n    int64 // bytes written
	seen map[string]bool
}

func newArchive(w io.Writer) *archive {
	return &archive{w: bufio.NewWriterSize(w, 1<<20), seen: map[string]bool{"": true}}
}

// merged are the folders which are links to those of the same name in /usr.
func merged() []string { return []string{"bin", "sbin", "lib", "lib64"} }

// inArchive turns a path of the guest into a name in the archive.
func inArchive(name string) string {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	first, _, _ := strings.Cut(name, "/")
	if slices.Contains(merged(), first) {
		return "usr/" + name
	}
	return name
}

func (a *archive) dir(name string, perm uint32) error {
	return a.entry(inArchive(name), unix.S_IFDIR|perm, 0, nil)
}

func (a *archive) file(name string, perm uint32, data string) error {
	return a.entry(inArchive(name), unix.S_IFREG|perm, int64(len(data)), strings.NewReader(data))
}

func (a *archive) link(name, target string) error {
	return a.entry(inArchive(name), unix.S_IFLNK|0o777, int64(len(target)), strings.NewReader(target))
}

// mergeUsr makes the links.
func (a *archive) mergeUsr() error {
	for _, m := range merged() {
		if err := a.dir("usr/"+m, 0o755); err != nil {
			return err
		}
		target := "usr/" + m
		if err := a.entry(m, unix.S_IFLNK|0o777, int64(len(target)), strings.NewReader(target)); err != nil {
			return err
		}
	}
	return nil
}

// tree adds a file of the host, or a folder and all that is in it.
func (a *archive) tree(name, source string) error {
	return filepath.WalkDir(source, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(source, p)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && p == source {
			info, err = os.Stat(p) // what the caller names may be a link
		}
		if err != nil {
			return err
		}
		return a.copy(path.Join(name, filepath.ToSlash(rel)), p, info)
	})
}

func (a *archive) copy(name, source string, info fs.FileInfo) error {
	perm := uint32(info.Mode().Perm())
	switch mode := info.Mode(); {
	case mode.IsDir():
		return a.dir(name, perm)
	case mode&fs.ModeSymlink != 0:
		target, err := os.Readlink(source)
		if err != nil {
			return err
		}
		return a.link(name, target)
	case mode.IsRegular():
		f, err := os.Open(source)
		if err != nil {
			return err
		}
		defer f.Close()
		return a.entry(inArchive(name), unix.S_IFREG|perm, info.Size(), f)
	default:
		return fmt.Errorf("%s is neither file, folder nor link", source)
	}
}

func (a *archive) entry(name string, mode uint32, size int64, data io.Reader) error {
	if a.seen[name] {
		return nil
	}
	if parent := path.Dir(name); parent != "." {
		if err := a.entry(parent, unix.S_IFDIR|0o755, 0, nil); err != nil {
			return err
		}
	}
	a.seen[name] = true
	return a.write(name, mode, size, data)
}

func (a *archive) write(name string, mode uint32, size int64, data io.Reader) error {
	if size > math.MaxUint32 {
		return fmt.Errorf("%s is too large", name)
	}
	// Magic number, inode, mode, user, group, links, time, size, device and special
	// device in two parts each, length of the name, checksum.
	n, err := fmt.Fprintf(a.w, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		len(a.seen), mode, 0, 0, 1, 0, size, 0, 0, 0, 0, len(name)+1, 0, name)
	a.n += int64(n)
	if err != nil {
		return err
	}
	if err := a.pad(); err != nil || data == nil {
		return err
	}
	copied, err := io.CopyN(a.w, data, size)
	a.n += copied
	if err != nil {
		return fmt.Errorf("copy %s: %w", name, err)
	}
	return a.pad()
}

// pad fills up to a multiple of four bytes.
func (a *archive) pad() error {
	n, err := a.w.WriteString("\x00\x00\x00"[:-a.n&3])
	a.n += int64(n)
	return err
}

func (a *archive) close() error {
	if err := a.write("TRAILER!!!", 0, 0, nil); err != nil {
		return err
	}
	return a.w.Flush()
}
