package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
)

// Paths of the job and of the modules in the guest.
const (
	jobFile     = "/vm/job"
	catalogFile = "/vm/catalog"
	modulesDir  = "/vm/modules"
)

// writeImage writes the initramfs: first the runner's own files, then the user's, then those of
// packages, as an archive takes no second file of the same name.
func (o *options) writeImage(w io.Writer, k kernel, modules catalog, packages string) error {
	a := newArchive(w)
	job, err := o.job()
	if err != nil {
		return err
	}
	if err := errors.Join(
		a.mergeUsr(),
		a.tree("/init", o.init),
		a.link("/sbin/modprobe", "/init"),
		a.file(jobFile, 0o644, string(job)),
		a.file(catalogFile, 0o644, modules.text()),
		a.file("/etc/passwd", 0o644, "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"),
		a.file("/etc/group", 0o644, "root:x:0:\nnogroup:x:65534:\n"),
		a.file("/etc/hosts", 0o644, "127.0.0.1 localhost\n::1 localhost\n"),
		a.link("/var/run", "/run"),
		a.dir("/root", 0o700),
	); err != nil {
		return err
	}
	for _, m := range mounts() {
		if err := a.dir(m.target, 0o755); err != nil {
			return err
		}
	}
	for _, m := range modules {
		if m.path == "" {
			continue
		}
		if err := a.tree(path.Join(modulesDir, m.path), filepath.Join(k.dir, m.path)); err != nil {
			return err
		}
	}
	for _, f := range o.files {
		if err := a.tree(f.target, f.source); err != nil {
			return fmt.Errorf("--file: %w", err)
		}
	}
	if packages != "" {
		if err := errors.Join(o.addAlternatives(a, packages), a.tree("/", packages)); err != nil {
			return err
		}
	}
	return a.close()
}

// addAlternatives makes the links that an install script of iptables would.
func (o *options) addAlternatives(a *archive, packages string) error {
	program := "xtables-" + o.iptables + "-multi"
	if _, err := os.Stat(filepath.Join(packages, "usr/sbin", program)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, name := range []string{"iptables", "ip6tables"} {
		for _, suffix := range []string{"", "-save", "-restore"} {
			if err := a.link("/usr/sbin/"+name+suffix, program); err != nil {
				return err
			}
		}
	}
	return nil
}
