package lab

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model/nettest"
)

// ErrClosed indicates that the namespace or the world was closed before.
var ErrClosed = errors.New("closed")

// errGoexit is what Do returns if its function ended the goroutine, as testing.T.FailNow does.
var errGoexit = errors.New("function ended its goroutine")

// Namespace is an anonymous network namespace. Any number of goroutines may
// use it.
type Namespace struct {
	name string
	file *os.File
}

// NewNamespace creates a namespace with the loopback interface up. Its name
// occurs in errors only.
func NewNamespace(name string) (*Namespace, error) {
	file, err := nettest.Create()
	if err != nil {
		return nil, fmt.Errorf("create network namespace %s: %w", name, err)
	}
	ns := &Namespace{name: name, file: file}
	if err := ns.Up("lo"); err != nil {
		return nil, errors.Join(err, ns.Close())
	}
	return ns, nil
}

// OpenNamespace opens an existing namespace by a file such as /proc/PID/ns/net. Its name occurs
// in errors only.
func OpenNamespace(name, path string) (*Namespace, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open network namespace %s: %w", name, err)
	}
	return &Namespace{name: name, file: file}, nil
}

// Name returns the name given to NewNamespace.
func (ns *Namespace) Name() string { return ns.name }

// Do runs fn inside the namespace, on a fresh goroutine with an OS thread for
// itself, and returns fn's error. What fn opens (sockets, files below
// /proc/sys/net) stays in the namespace and may be used from anywhere later.
// Goroutines that fn starts are outside. After Close, Do returns ErrClosed.
func (ns *Namespace) Do(fn func() error) error {
	return ns.do(func(func()) error { return fn() })
}

// do is Do for a function that may leave the namespace, and the OS thread to others, before its end.
func (ns *Namespace) do(fn func(leave func()) error) error {
	done := make(chan error, 1)
	go func() {
		err := errGoexit
		defer func() { done <- err }()

		runtime.LockOSThread()
		home, openErr := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if openErr != nil {
			err = fmt.Errorf("open the thread's network namespace: %w", openErr)
			runtime.UnlockOSThread()
			return
		}
		// If the thread can't return, the goroutine ends with its thread
		// locked, and the runtime ends the thread, too.
		inside := true
		leave := func() {
			if !inside {
				return
			}
			inside = false
			if unix.Setns(home, unix.CLONE_NEWNET) == nil {
				runtime.UnlockOSThread()
			}
			unix.Close(home)
		}
		defer leave()
		if enterErr := ns.withFD(func(fd int) error { return unix.Setns(fd, unix.CLONE_NEWNET) }); enterErr != nil {
			err = fmt.Errorf("enter network namespace %s: %w", ns.name, enterErr)
			return
		}
		err = fn(leave)
	}()
	return <-done
}

// Close releases the namespace. The kernel destroys it, with its links and their
// peers, once no socket and no process uses it.
func (ns *Namespace) Close() error {
	if err := ns.file.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("close network namespace %s: %w", ns.name, err)
	}
	return nil
}

// withFD calls fn with the namespace's descriptor, which stays valid meanwhile
// even if another goroutine closes the namespace.
func (ns *Namespace) withFD(fn func(fd int) error) error {
	conn, err := ns.file.SyscallConn()
	if err != nil || conn.Control(func(fd uintptr) { err = fn(int(fd)) }) != nil {
		return ErrClosed
	}
	return err
}
