package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// reexecEnv marks a process that Reexec started.
const reexecEnv = "VMAPD_LAB_USERNS"

// Reexec makes sure that namespaces can be created. If this process may do so
// already, done is false and the caller carries on. Otherwise Reexec runs the
// same program with the same arguments and standard streams again, as root of
// a new user, mount and network namespace, and waits for it: done is true, and
// code is what to exit with (128 and the number of the signal if one ended it).
//
// A terminal's signals are the other one's matter. If this one ends, the other is
// killed. Call Reexec before anything else that a second process should not do twice.
//
// The error is a *PrivilegeError if the system does not allow user namespaces.
func Reexec() (code int, done bool, err error) {
	again := os.Getenv(reexecEnv) != ""
	os.Unsetenv(reexecEnv) // it is not about the programs that this one starts
	err = privileged()
	var missing *PrivilegeError
	switch {
	case err == nil && again:
		return 0, false, loopbackUp()
	case err == nil || !errors.As(err, &missing):
		return 0, false, err
	case again:
		return 0, false, &PrivilegeError{Step: "create a user namespace", Err: errNoCapabilities}
	}

	// The parent-death signal is sent when the *thread* that forked ends, so
	// this goroutine keeps its thread until the other process has ended.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	cmd := &exec.Cmd{
		// Not os.Executable: the folder of the program may be closed to the
		// user by now, and the program may have been replaced or deleted.
		Path:   "/proc/self/exe",
		Args:   os.Args,
		Env:    append(os.Environ(), reexecEnv+"=1"),
		Stdin:  os.Stdin,
		Stdout: os.Stdout,
		Stderr: os.Stderr,
		SysProcAttr: &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
			Pdeathsig:   syscall.SIGKILL,
		},
	}

	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGINT, unix.SIGQUIT) // a terminal sends them to both processes
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return 0, false, &PrivilegeError{Step: "create a user namespace", Err: err}
	}
	err = cmd.Wait()

	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return 0, true, fmt.Errorf("wait for the process in the user namespace: %w", err)
	}
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return 128 + int(status.Signal()), true, nil
	}
	return status.ExitStatus(), true, nil
}

// Main is the main function of a program that builds worlds: it runs the program, in a user namespace if need be, until
// it ends or is interrupted.
func Main(name string, run func(ctx context.Context) error) {
	code, done, err := Reexec()
	if done {
		os.Exit(code)
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	if err == nil {
		err = run(ctx)
	}
	stop()
	switch {
	case err == nil:
	case errors.Is(err, context.Canceled):
		fmt.Fprintf(os.Stderr, "%s: interrupted; everything was removed\n", name)
		os.Exit(128 + int(unix.SIGINT)) // as in a shell
	default:
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// loopbackUp makes 127.0.0.1 and ::1 usable in the network namespace that
// Reexec gave the process; they are not in a new one. A program may listen
// there, and package net decides by ::1 whether there is IPv6 at all.
func loopbackUp() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find link lo: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("set link lo up: %w", err)
	}
	return nil
}
