package lab

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// threadNamespace is the network namespace of the thread that opens it.
const threadNamespace = "/proc/thread-self/ns/net"

// Namespace is an anonymous network namespace. Any number of goroutines may
// use it.
type Namespace struct {
	name string
	file *os.File
	conn syscall.RawConn // of file; keeps its descriptor valid against Close

	mu     sync.RWMutex    // held for writing by Close
	handle *netlink.Handle // opened inside; nil after Close
}

// NewNamespace creates a namespace with the loopback interface up. Its name
// occurs in errors only. The error is a *PrivilegeError if the kernel refuses.
func NewNamespace(name string) (*Namespace, error) {
	ns := &Namespace{name: name}
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return &PrivilegeError{Step: "create network namespace " + name, Err: err}
		}
		return ns.open()
	})
	if err == nil {
		err = ns.Up("lo")
	}
	if err != nil {
		return nil, errors.Join(err, ns.Close())
	}
	return ns, nil
}

// OpenNamespace opens an existing namespace by a file such as /proc/PID/ns/net. Its name occurs
// in errors only.
func OpenNamespace(name, path string) (*Namespace, error) {
	ns := &Namespace{name: name}
	err := onThread(func() error {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open network namespace %s, %s: %w", name, path, err)
		}
		defer unix.Close(fd)
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter network namespace %s: %w", name, err)
		}
		return ns.open()
	})
	if err != nil {
		return nil, errors.Join(err, ns.Close())
	}
	return ns, nil
}

// open opens the namespace of this thread.
func (ns *Namespace) open() error {
	var err error
	if ns.file, err = os.Open(threadNamespace); err != nil {
		return fmt.Errorf("open network namespace %s: %w", ns.name, err)
	}
	if ns.conn, err = ns.file.SyscallConn(); err != nil {
		return fmt.Errorf("use network namespace %s: %w", ns.name, err)
	}
	if ns.handle, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return fmt.Errorf("open netlink in namespace %s: %w", ns.name, err)
	}
	return nil
}

// Name returns the name given to NewNamespace.
func (ns *Namespace) Name() string { return ns.name }

// Do runs fn inside the namespace, on a fresh goroutine with an OS thread for
// itself, and returns fn's error. What fn opens (sockets, files below
// /proc/sys/net) stays in the namespace and may be used from anywhere later.
// Goroutines that fn starts are outside. After Close, Do returns ErrClosed.
func (ns *Namespace) Do(fn func() error) error {
	return onThread(func() error {
		if err := ns.withFD(func(fd int) error { return unix.Setns(fd, unix.CLONE_NEWNET) }); err != nil {
			return fmt.Errorf("enter network namespace %s: %w", ns.name, err)
		}
		return fn()
	})
}

// Close releases the namespace. The kernel destroys it, with its links and their
// peers, once no socket and no process uses it.
func (ns *Namespace) Close() error {
	ns.mu.Lock()
	if ns.handle != nil {
		ns.handle.Close()
		ns.handle = nil
	}
	ns.mu.Unlock()
	if ns.file == nil {
		return nil
	}
	if err := ns.file.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("close network namespace %s: %w", ns.name, err)
	}
	return nil
}

// withFD calls fn with the namespace's descriptor, which stays valid meanwhile
// even if another goroutine closes the namespace.
func (ns *Namespace) withFD(fn func(fd int) error) error {
	var err error
	if ns.conn.Control(func(fd uintptr) { err = fn(int(fd)) }) != nil {
		return ErrClosed
	}
	return err
}

// onThread runs fn on a fresh goroutine that has an OS thread for itself, so
// fn may change the thread's network namespace.
func onThread(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		err := errGoexit
		defer func() { done <- err }()

		runtime.LockOSThread()
		home, openErr := unix.Open(threadNamespace, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if openErr != nil {
			err = fmt.Errorf("open the thread's network namespace: %w", openErr)
			runtime.UnlockOSThread()
			return
		}
		defer func() {
			// If the thread can't return, the goroutine ends with its thread
			// locked, and the runtime ends the thread, too.
			if unix.Setns(home, unix.CLONE_NEWNET) == nil {
				runtime.UnlockOSThread()
			}
			unix.Close(home)
		}()
		err = fn()
	}()
	return <-done
}
