package debian

import (
	"cmp"
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

// Cache is the folder of downloads. Each folder in it is made once.
type Cache struct{ Dir string }

// UserCache is the folder that programs of one user share.
func UserCache() (Cache, error) {
	user, err := os.UserCacheDir()
	if err != nil {
		return Cache{}, fmt.Errorf("find a folder for packages: %w", err)
	}
	return Cache{Dir: filepath.Join(user, "vmapd-vm")}, nil
}

// Command is a program that does not outlive this one. Call it on the main thread.
func Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, name, args...)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	c.WaitDelay = time.Second
	return c
}

// Output runs a program in a folder and returns what it prints.
func Output(ctx context.Context, dir, name string, args ...string) (string, error) {
	return output(Command(ctx, name, args...), dir)
}

func output(c *exec.Cmd, dir string, env ...string) (string, error) {
	c.Dir = dir
	c.Env = append(append(os.Environ(), "LC_ALL=C"), env...)
	out, err := c.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", filepath.Base(c.Path), err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}

// Folder returns the folder of a name. If it is not there, fill makes it.
func (c Cache) Folder(ctx context.Context, name string, fill func(dir string) error) (string, error) {
	dir := filepath.Join(c.Dir, name)
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	unlock, err := c.lock(ctx)
	if err != nil {
		return "", fmt.Errorf("lock %s: %w", c.Dir, err)
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

func (c Cache) lock(ctx context.Context) (unlock func(), err error) {
	f, err := os.Create(filepath.Join(c.Dir, "lock"))
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) || ctx.Err() != nil {
			f.Close()
			return nil, cmp.Or(ctx.Err(), err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// Packages unpacks packages and what they depend on, and returns the folder that they are
// in; it is empty if there are none. They are from the suites that this machine uses.
func (c Cache) Packages(ctx context.Context, names []string) (string, error) {
	dir, err := getPackages(ctx, names, c.Folder, func(dir string, args ...string) error {
		if err := os.WriteFile(filepath.Join(dir, "status"), nil, 0o644); err != nil {
			return err
		}
		// With the empty status, no package is installed, so apt downloads all dependencies. The
		// other options are for users who are not root, and for folders that only root may write.
		_, err := Output(ctx, dir, "apt-get", append([]string{
			"-o", "Dir::State::status=" + dir + "/status", "-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User=root",
		}, args...)...)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("%w (was \"apt-get update\" run?)", err)
	}
	return dir, nil
}

// getPackages makes a folder of packages, which get downloads with arguments for apt-get.
func getPackages(
	ctx context.Context, names []string,
	folder func(context.Context, string, func(dir string) error) (string, error),
	get func(dir string, args ...string) error,
) (string, error) {
	if len(names) == 0 {
		return "", nil
	}
	names = slices.Sorted(slices.Values(names))
	dir, err := folder(ctx, strings.Join(names, ","), func(dir string) error {
		archives := filepath.Join(dir, "archives")
		if err := os.MkdirAll(filepath.Join(archives, "partial"), 0o755); err != nil {
			return err
		}
		if err := get(dir, append([]string{
			"-qq", "-y", "--no-install-recommends", "--download-only", "-o", "Dir::Cache::archives=" + archives, "install",
		}, names...)...); err != nil {
			return err
		}
		root := filepath.Join(dir, "root")
		err := Unpack(ctx, archives, root)
		for _, useless := range []string{"doc", "man", "locale", "info", "lintian", "bash-completion", "zsh"} {
			err = errors.Join(err, os.RemoveAll(filepath.Join(root, "usr/share", useless)))
		}
		return errors.Join(err, os.RemoveAll(archives))
	})
	if err != nil {
		return "", fmt.Errorf("get packages %s: %w", strings.Join(names, ", "), err)
	}
	return filepath.Join(dir, "root"), nil
}

// Unpack unpacks the packages in a folder, and deletes them.
func Unpack(ctx context.Context, dir, root string) error {
	packages, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(packages) == 0 {
		return errors.Join(err, fmt.Errorf("no package was downloaded to %s", dir))
	}
	for _, p := range packages {
		if _, err := Output(ctx, dir, "dpkg-deb", "--extract", p, root); err != nil {
			return err
		}
		if err := os.Remove(p); err != nil {
			return err
		}
	}
	return nil
}
