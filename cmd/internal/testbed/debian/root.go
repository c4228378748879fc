package debian

import (
	"context"
	"errors"
	"os"
	"path/filepath"
)

// Root is the root folder of an image or a machine, while it is made. What is written replaces what is there.
type Root string

// Path returns the path of a file on this machine.
func (r Root) Path(name string) string { return filepath.Join(string(r), name) }

// Dir makes a folder.
func (r Root) Dir(name string, mode os.FileMode) error {
	return errors.Join(os.MkdirAll(r.Path(name), 0o755), os.Chmod(r.Path(name), mode))
}

// clear makes the folder of a file, which is removed.
func (r Root) clear(name string) error {
	return errors.Join(os.MkdirAll(filepath.Dir(r.Path(name)), 0o755), os.RemoveAll(r.Path(name)))
}

// File writes a file.
func (r Root) File(name, text string) error {
	if err := r.clear(name); err != nil {
		return err
	}
	return os.WriteFile(r.Path(name), []byte(text), 0o644)
}

// Link makes a symbolic link.
func (r Root) Link(name, target string) error {
	if err := r.clear(name); err != nil {
		return err
	}
	return os.Symlink(target, r.Path(name))
}

// Copy copies a file or a folder of this machine.
func (r Root) Copy(ctx context.Context, name, source string) error {
	if err := r.clear(name); err != nil {
		return err
	}
	_, err := Output(ctx, ".", "cp", "-rH", "--preserve=mode", "--", source, r.Path(name))
	return err
}

// IPTables makes the links that an install script of iptables would, for the variant nft or legacy.
func (r Root) IPTables(variant string) error {
	for _, name := range []string{"iptables", "ip6tables"} {
		for _, suffix := range []string{"", "-save", "-restore"} {
			if err := r.Link("usr/sbin/"+name+suffix, "xtables-"+variant+"-multi"); err != nil {
				return err
			}
		}
	}
	return nil
}

// Add adds the files of unpacked packages, and what Debian's install scripts would make. /bin, /sbin, /lib are links.
func (r Root) Add(ctx context.Context, packages string) error {
	for _, m := range []string{"bin", "sbin", "lib", "lib64"} {
		if err := errors.Join(r.Dir("usr/"+m, 0o755), r.Link(m, "usr/"+m)); err != nil {
			return err
		}
	}
	if packages != "" {
		const copied = `tar -C "$1" -c . | tar -C "$2" -x --keep-directory-symlink`
		if _, err := Output(ctx, ".", "bash", "-euo", "pipefail", "-c", copied, "bash", packages, string(r)); err != nil {
			return err
		}
	}
	return errors.Join(
		r.Dir("tmp", os.ModeSticky|0o777),
		r.Dir("var/tmp", os.ModeSticky|0o777),
		r.Dir("run", 0o755),
		r.Link("var/run", "/run"),
		r.Dir("root", 0o700),
		r.Dir("usr/lib/modules", 0o755),
		r.File("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"),
		r.File("etc/group", "root:x:0:\nnogroup:x:65534:\n"),
		r.File("etc/nsswitch.conf", "hosts: files dns\n"),
	)
}
