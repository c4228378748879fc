package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// cache is the folder of downloads. Each folder in it is made once.
type cache struct{ dir string }

// command is a program that does not outlive this one. Call it on the main thread.
func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, name, args...)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	c.WaitDelay = time.Second
	return c
}

// output runs a program in a folder and returns what it prints.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	c := command(ctx, name, args...)
	c.Dir = dir
	c.Env = append(os.Environ(), "LC_ALL=C")
	out, err := c.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", name, err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}

// folder returns the folder of a name. If it is not there, fill makes it.
func (c cache) folder(ctx context.Context, name string, fill func(dir string) error) (string, error) {
	dir := filepath.Join(c.dir, name)
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return "", err
	}
	unlock, err := c.lock(ctx)
	if err != nil {
		return "", fmt.Errorf("lock %s: %w", c.dir, err)
	}
	defer unlock()
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		return dir, err
	}
	work := dir + ".new"
	defer func() { _ = os.RemoveAll(work) }()
	// A killed process may have left a folder.
	if err := errors.Join(os.RemoveAll(work), os.Mkdir(work, 0o755)); err != nil {
		return "", err
	}
	if err := fill(work); err != nil {
		return "", err
	}
	return dir, os.Rename(work, dir)
}

func (c cache) lock(ctx context.Context) (unlock func(), err error) {
	f, err := os.Create(filepath.Join(c.dir, "lock"))
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			f.Close()
			return nil, err
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// scratch returns a file that has no name, so that it can't stay behind.
func (c cache) scratch() (*os.File, error) {
	f, err := os.CreateTemp(c.dir, "scratch-")
	if err != nil {
		return nil, err
	}
	return f, os.Remove(f.Name())
}

// kernel is an unpacked kernel package.
type kernel struct {
	image   string
	dir     string // of modules
	modules catalog
}

func (c cache) kernel(ctx context.Context, name string) (kernel, error) {
	dir, err := c.folder(ctx, name, func(dir string) error { return unpackKernel(ctx, dir, name) })
	if err != nil {
		return kernel{}, fmt.Errorf("get kernel %s: %w", name, err)
	}
	k := kernel{image: filepath.Join(dir, "vmlinuz"), dir: filepath.Join(dir, "modules")}
	text, err := os.ReadFile(filepath.Join(dir, "catalog"))
	if err != nil {
		return kernel{}, err
	}
	k.modules, err = parseCatalog(string(text))
	return k, err
}

// unpackKernel leaves vmlinuz, modules and their catalog in a folder.
func unpackKernel(ctx context.Context, dir, name string) error {
	for next := name; next != ""; {
		name = next
		depends, err := output(ctx, dir, "apt-cache", "depends", "--important", name)
		if err != nil {
			return withHint(err)
		}
		next = imageIn(depends)
	}
	if _, err := output(ctx, dir, "apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", name); err != nil {
		return withHint(err)
	}
	root := filepath.Join(dir, "root")
	if err := unpack(ctx, dir, root); err != nil {
		return err
	}
	modules := filepath.Join(dir, "modules")
	if err := errors.Join(
		move(filepath.Join(dir, "vmlinuz"), filepath.Join(root, "boot/vmlinuz-*")),
		move(modules, filepath.Join(root, "lib/modules/*"), filepath.Join(root, "usr/lib/modules/*")),
		os.RemoveAll(root),
	); err != nil {
		return err
	}
	// 6.12 has them packed, and could unpack them itself, but slowly.
	if _, err := output(ctx, modules, "find", ".", "-name", "*.ko.xz", "-exec", "xz", "--decompress", "{}", "+"); err != nil {
		return err
	}
	found, err := scanModules(modules)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "catalog"), []byte(found.text()), 0o644)
}

// move gives the one file or folder that matches a pattern another name.
func move(target string, patterns ...string) error {
	var found []string
	for _, p := range patterns {
		matches, err := filepath.Glob(p)
		if err != nil {
			return err
		}
		found = append(found, matches...)
	}
	if len(found) != 1 {
		return fmt.Errorf("the package has %d of %s, want one", len(found), strings.Join(patterns, ", "))
	}
	return os.Rename(found[0], target)
}

// imageIn finds the kernel that a package without one depends on.
func imageIn(depends string) string {
	for line := range strings.Lines(depends) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "Depends: "); ok && strings.HasPrefix(name, "linux-image-") {
			return name
		}
	}
	return ""
}

// packages unpacks packages and what they depend on, and returns the folder that they are
// in; it is empty if there are none.
func (c cache) packages(ctx context.Context, names []string) (string, error) {
	if len(names) == 0 {
		return "", nil
	}
	names = slices.Sorted(slices.Values(names))
	dir, err := c.folder(ctx, strings.Join(names, ","), func(dir string) error {
		if err := errors.Join(
			os.MkdirAll(filepath.Join(dir, "archives/partial"), 0o755),
			os.WriteFile(filepath.Join(dir, "status"), nil, 0o644),
		); err != nil {
			return err
		}
		// With the empty status, no package is installed, so apt downloads all dependencies. The
		// other options are for users who are not root, and for folders that only root may write.
		_, err := output(ctx, dir, "apt-get", append([]string{
			"-qq", "-y", "--no-install-recommends", "--download-only",
			"-o", "Dir::State::status=" + dir + "/status", "-o", "Dir::Cache::archives=" + dir + "/archives",
			"-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User=root", "install",
		}, names...)...)
		if err != nil {
			return withHint(err)
		}
		root := filepath.Join(dir, "root")
		err = unpack(ctx, filepath.Join(dir, "archives"), root)
		for _, useless := range []string{"doc", "man", "locale", "info", "lintian", "bash-completion", "zsh"} {
			err = errors.Join(err, os.RemoveAll(filepath.Join(root, "usr/share", useless)))
		}
		return errors.Join(err, os.RemoveAll(filepath.Join(dir, "archives")))
	})
	if err != nil {
		return "", fmt.Errorf("get packages %s: %w", strings.Join(names, ", "), err)
	}
	return filepath.Join(dir, "root"), nil
}

// unpack unpacks the packages in a folder, and deletes them.
func unpack(ctx context.Context, dir, root string) error {
	packages, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(packages) == 0 {
		return errors.Join(err, fmt.Errorf("no package was downloaded to %s", dir))
	}
	for _, p := range packages {
		if _, err := output(ctx, dir, "dpkg-deb", "--extract", p, root); err != nil {
			return err
		}
		if err := os.Remove(p); err != nil {
			return err
		}
	}
	return nil
}

func withHint(err error) error {
	return fmt.Errorf("%w (was \"apt-get update\" run?)", err)
}
