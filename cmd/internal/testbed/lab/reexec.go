package lab

import (
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
// Signals that would end this process go to the other one instead. If this one
// is killed, so is the other. Call Reexec before anything else that a second
// process should not do twice.
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

	signals := make(chan os.Signal, 8)
	signal.Notify(signals, forwarded()...)
	if err := cmd.Start(); err != nil {
		signal.Stop(signals)
		return 0, false, &PrivilegeError{Step: "create a user namespace", Err: err}
	}
	stop := forward(signals, cmd.Process)
	err = cmd.Wait()
	stop()

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

// forwarded returns the signals that end or steer a process.
func forwarded() []os.Signal {
	return []os.Signal{
		unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGHUP, unix.SIGUSR1, unix.SIGUSR2,
	}
}

// forward passes signals on to p. The function returned ends that.
func forward(signals chan os.Signal, p *os.Process) (stop func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for s := range signals {
			// The kernel sends a terminal's signals to both processes. To
			// most programs, a second interrupt would mean "at once".
			if (s == unix.SIGINT || s == unix.SIGQUIT) && inForeground() {
				continue
			}
			_ = p.Signal(s) // ended meanwhile: Wait is about to say so
		}
	}()
	return func() {
		signal.Stop(signals)
		close(signals) // nothing sends after Stop has returned
		<-done
	}
}

// inForeground reports whether keys typed at the controlling terminal become
// signals to this process.
func inForeground() bool {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false // no terminal
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
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
