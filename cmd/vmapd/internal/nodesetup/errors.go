package nodesetup

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Reasons why a setting could not be written. [WriteError.Err] wraps one of them, or another error
// of the kernel.
var (
	// ErrNoConntrack: the kernel has not loaded connection tracking yet, or lacks this setting.
	ErrNoConntrack = errors.New("the kernel module nf_conntrack is not loaded, or has no such setting")
	// ErrReadOnly: the container runtime mounted /proc/sys or /sys read-only.
	ErrReadOnly = errors.New("mounted read-only: use a privileged container, for instance an init container with " +
		"--init-only")
	// ErrNotInitial: the setting belongs to the machine, not to a network namespace.
	ErrNotInitial = errors.New("only the initial network namespace may change this, and this process is in another: " +
		"set it on the host itself")
	// ErrPermission: this process lacks the privilege.
	ErrPermission = errors.New("only root may change this: set it on the host itself, or by an init container with " +
		"--init-only")
)

// WriteError is a setting that could not be written. Its message has the file, the wanted and the
// present value, and a remedy.
type WriteError struct {
	Write
	Err error
}

func (f WriteError) Error() string {
	return fmt.Sprintf("%s should be %s and is %s: %v", f.File, f.Value, cmp.Or(f.Have, "unknown"), f.Err)
}

func (f WriteError) Unwrap() error { return f.Err }

// explain replaces the kernel's error by one that names a remedy.
func (o Options) explain(file string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ErrNoConntrack
	case errors.Is(err, unix.EROFS):
		return ErrReadOnly
	case errors.Is(err, unix.EOPNOTSUPP): // the answer of the module's parameter
		return ErrNotInitial
	case !errors.Is(err, fs.ErrPermission):
		return err
	}
	// In other namespaces, nobody may write the file.
	const forWriting = 0o222
	if info, err := os.Stat(o.path(file)); err == nil && info.Mode().Perm()&forWriting == 0 {
		return ErrNotInitial
	}
	return ErrPermission
}
