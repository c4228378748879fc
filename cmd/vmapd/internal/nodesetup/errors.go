package nodesetup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Why something could not be set. [WriteError.Err] wraps one of them, unless the kernel had
// another objection.
var (
	// ErrNoConntrack: the kernel has no connection tracking yet, or not this setting of it.
	ErrNoConntrack = errors.New("the kernel module nf_conntrack is not loaded, or has no such setting")
	// ErrReadOnly: the container runtime mounted /proc/sys or /sys read-only.
	ErrReadOnly = errors.New("mounted read-only here: use a privileged container, for instance an init container with --init-only")
	// ErrNotInitial: the setting is the whole machine's.
	ErrNotInitial = errors.New("only the initial network namespace may change this, and this process is in another: set it on the host itself")
	// ErrPermission: this process may not.
	ErrPermission = errors.New("this takes root's permission: set it on the host itself, or by an init container with --init-only")
)

// WriteError is something that could not be set. As an error, it tells the file, the value that
// it should have and the one it has, and what can be done about it.
type WriteError struct {
	Write
	Err error
}

func (f WriteError) Error() string {
	have := f.Have
	if have == "" {
		have = "unknown"
	}
	return fmt.Sprintf("%s should be %s and is %s: %v", f.File, f.Value, have, f.Err)
}

func (f WriteError) Unwrap() error { return f.Err }

// explain puts what an administrator can do in place of what the kernel said.
func (o Options) explain(file string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ErrNoConntrack
	case errors.Is(err, unix.EROFS):
		return ErrReadOnly
	case errors.Is(err, unix.EOPNOTSUPP): // so answers the module's parameter
		return ErrNotInitial
	case !errors.Is(err, fs.ErrPermission):
		return err
	}
	// In other namespaces the file is writable for nobody.
	const forWriting = 0o222
	if info, err := os.Stat(o.path(file)); err == nil && info.Mode().Perm()&forWriting == 0 {
		return ErrNotInitial
	}
	return ErrPermission
}
