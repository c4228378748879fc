package debian

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

// Command is a program that does not outlive this one. Call it on the main thread.
func Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, name, args...)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	c.WaitDelay = time.Second
	return c
}

// Output runs a program in a folder and returns what it prints.
func Output(ctx context.Context, dir, name string, args ...string) (string, error) {
	c := Command(ctx, name, args...)
	c.Dir = dir
	c.Env = append(os.Environ(), "LC_ALL=C")
	out, err := c.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", filepath.Base(name), err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}

// Folder returns the folder of a name. If it is not there, fill makes it.
func (a Archive) Folder(ctx context.Context, name string, fill func(dir string) error) (string, error) {
	dir := filepath.Join(a.Dir, a.String(), name)
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	lock, err := os.Create(filepath.Join(a.Dir, "lock"))
	if err != nil {
		return "", err
	}
	defer lock.Close()
	for unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		if ctx.Err() != nil {
			return "", fmt.Errorf("lock %s: %w", a.Dir, ctx.Err())
		}
		time.Sleep(100 * time.Millisecond)
	}
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
		return "", fmt.Errorf("get %s of %s: %w", name, a, err)
	}
	return dir, os.Rename(work, dir)
}

// Packages unpacks packages and what they depend on, and returns the folder that they are in; it is empty if there are
// none.
func (a Archive) Packages(ctx context.Context, names ...string) (string, error) {
	if len(names) == 0 {
		return "", nil
	}
	names = slices.Sorted(slices.Values(names))
	dir, err := a.Folder(ctx, strings.Join(names, ","), func(dir string) error {
		if err := a.Update(ctx); err != nil {
			return err
		}
		archives := filepath.Join(dir, "archives")
		if err := os.MkdirAll(filepath.Join(archives, "partial"), 0o755); err != nil {
			return err
		}
		if _, err := a.Apt(ctx, dir, "apt-get", append([]string{
			"-qq", "-y", "--no-install-recommends", "--download-only", "-o", "Dir::Cache::archives=" + archives, "install",
		}, names...)...); err != nil {
			return err
		}
		return errors.Join(Unpack(ctx, archives, filepath.Join(dir, "root")), os.RemoveAll(archives))
	})
	return filepath.Join(dir, "root"), err
}

// Unpack unpacks the packages in a folder, and deletes them.
func Unpack(ctx context.Context, dir, root string) error {
	const each = `for p in *.deb; do dpkg-deb --extract "$p" "$1"; rm "$p"; done
cd "$1/usr/share" 2>/dev/null && rm -rf doc man locale info lintian bash-completion zsh || true`
	_, err := Output(ctx, dir, "sh", "-ec", each, "sh", root)
	return err
}
