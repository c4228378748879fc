package vmapdtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/socket"
)

// Container is a program in a folder, as a container runtime starts it.
type Container struct {
	Root       string
	UID, GID   int
	Privileged bool
	Env        []string
	Command    []string
}

// In starts the container in a network namespace, with further arguments, as this test binary that becomes its program.
func (c Container) In(t *testing.T, ns *lab.Namespace, args ...string) *Process {
	t.Helper()
	c.Command = slices.Concat(c.Command, args)
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return Launch(t, ns, "/proc/self/exe", "in-container", string(text))
}

// enter gives this process what the DaemonSet's securityContext says, and no more: NET_ADMIN and NET_RAW, no_new_privs,
// and a root file system that can't be written to, with /proc and /sys as runtimes mount them, and the folder of the
// socket. If privileged, it has all capabilities, and may write to /proc/sys and /sys.
func (c Container) enter() error {
	runtime.LockOSThread() // what follows concerns the thread that executes the program
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare mounts: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	proc, sys := filepath.Join(c.Root, "proc"), filepath.Join(c.Root, "sys")
	settings := filepath.Join(proc, "sys")
	mounts := [][2]string{{c.Root, c.Root}, {"/proc", proc}, {settings, settings}, {"/sys", sys}}
	for _, path := range []string{filepath.Dir(socket.DefaultPath), XtablesLock} { // these stay writable
		if path = filepath.Join(c.Root, path); there(path) {
			mounts = append(mounts, [2]string{path, path})
		}
	}
	if dev := filepath.Join(c.Root, "dev"); there(dev) {
		mounts = append(mounts, [2]string{"/dev", dev})
	}
	for _, m := range mounts {
		if err := unix.Mount(m[0], m[1], "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("bind %s: %w", m[0], err)
		}
	}
	locked := []string{settings, sys, c.Root}
	if c.Privileged {
		locked = []string{c.Root}
	}
	for _, path := range locked {
		if err := readOnly(path); err != nil {
			return fmt.Errorf("make %s read-only: %w", path, err)
		}
	}
	if err := errors.Join(unix.Chroot(c.Root), unix.Chdir("/")); err != nil {
		return err
	}
	if !c.Privileged {
		if err := onlyCapabilities(); err != nil {
			return err
		}
	}
	// Go's own functions of these names, as they are for all threads.
	if err := errors.Join(syscall.Setgid(c.GID), syscall.Setuid(c.UID)); err != nil {
		return err
	}
	return syscall.Exec(c.Command[0], c.Command, c.Env)
}

// XtablesLock is the lock of iptables-legacy, which the DaemonSet mounts.
const XtablesLock = "/run/xtables.lock"

// ProgramPath is where the image has the program.
const ProgramPath = "/usr/local/bin/vmapd"

// inContainer is a command, for tests: it enters a folder as a container runtime does, and
// becomes the program that is there.
func inContainer() {
	var c Container
	err := json.Unmarshal([]byte(os.Args[1]), &c)
	if err == nil {
		err = c.enter()
	}
	fmt.Fprintln(os.Stderr, "enter the container:", err) // or it would not have returned
	os.Exit(1)
}

func there(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// onlyCapabilities drops all but those of the DaemonSet, for good.
func onlyCapabilities() error {
	for c := uintptr(0); ; c++ {
		if c == unix.CAP_NET_ADMIN || c == unix.CAP_NET_RAW {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); errors.Is(err, unix.EINVAL) {
			break // the kernel has no more
		} else if err != nil {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
}

// readOnly remounts a mount. In a user namespace, its other flags must stay.
func readOnly(path string) error {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return err
	}
	flags := uintptr(s.Flags) & (unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOATIME | unix.MS_NODIRATIME)
	if s.Flags&unix.ST_RELATIME != 0 {
		flags |= unix.MS_RELATIME
	}
	return unix.Mount("", path, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|flags, "")
}

// withoutPrivileges becomes another program, with the arguments that follow, as an ordinary user: with no
// capability and no means to get one and, unless a user namespace has no other user, as nobody.
func withoutPrivileges() {
	runtime.LockOSThread()
	const nobody = 65534
	for c := range uintptr(unix.CAP_LAST_CAP + 1) {
		_ = unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
	}
	for _, call := range []uintptr{unix.SYS_SETRESGID, unix.SYS_SETRESUID} {
		_, _, _ = unix.RawSyscall(call, nobody, nobody, nobody) // EINVAL: there is no such user here
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		fmt.Fprintln(os.Stderr, "capset:", err)
		os.Exit(1)
	}
	err := unix.Exec("/proc/self/exe", os.Args[1:], os.Environ())
	fmt.Fprintln(os.Stderr, "exec:", err)
	os.Exit(1)
}
