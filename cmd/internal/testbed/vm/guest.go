package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// guest is the main function of process 1. It does not return.
func guest() {
	result := ""
	if code, err := runJob(); err != nil {
		result = saysError + strings.ReplaceAll(err.Error(), "\n", "; ")
	} else {
		result = fmt.Sprint(saysExit, code)
	}
	fmt.Println("vm:", result) // to the console
	if port, err := openPort(resultPort); err != nil {
		fmt.Println("vm:", err)
	} else {
		fmt.Fprintln(port, result)
		drain(port)
	}
	drain(os.Stdout)
	err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	panic(fmt.Sprintf("power off: %v", err)) // process 1 panics, so the kernel does
}

type mount struct{ kind, target string }

func mounts() []mount {
	return []mount{
		{"proc", "/proc"},
		{"sysfs", "/sys"},
		{"cgroup2", "/sys/fs/cgroup"},
		{"devtmpfs", "/dev"},
		{"devpts", "/dev/pts"},
		{"tmpfs", "/dev/shm"},
		{"tmpfs", "/run"},
		{"tmpfs", "/tmp"},
	}
}

// runJob sets the machine up, loads modules, and runs the command.
func runJob() (int, error) {
	for _, m := range mounts() {
		if err := os.MkdirAll(m.target, 0o755); err != nil { // in what was mounted before
			return 0, err
		}
		if err := unix.Mount(m.kind, m.target, m.kind, 0, ""); err != nil {
			return 0, fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	env := map[string]string{"PATH": "/usr/sbin:/usr/bin", "HOME": "/root", "TERM": "dumb", "LANG": "C.UTF-8"}
	for key, value := range env {
		if err := os.Setenv(key, value); err != nil {
			return 0, err
		}
	}
	if err := errors.Join(
		os.Chmod("/tmp", 0o1777|os.ModeSticky),
		os.Symlink("/proc/self/fd", "/dev/fd"),
		os.Symlink("fd/0", "/dev/stdin"), // the source "-" of old versions of nft
		unix.Sethostname([]byte("vm")),
		loopbackUp(),
		// An emulated processor that starts a program leaves packets between namespaces alone for seconds: with room for
		// 1,000, as usual, 165,000 of 290,000 were dropped.
		os.WriteFile("/proc/sys/net/core/netdev_max_backlog", []byte("100000"), 0),
	); err != nil {
		return 0, fmt.Errorf("set up the guest: %w", err)
	}
	var kernel unix.Utsname
	if err := unix.Uname(&kernel); err != nil {
		return 0, err
	}
	if err := os.Symlink(modulesName, filepath.Join("/usr/lib/modules", unix.ByteSliceToString(kernel.Release[:]))); err != nil {
		return 0, err
	}
	uptime, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return 0, err
	}
	fmt.Println("vm: booted after", strings.Fields(string(uptime))[0], "s")

	text, err := os.ReadFile(jobFile)
	if err != nil {
		return 0, err
	}
	var j job
	if err := json.Unmarshal(text, &j); err != nil {
		return 0, fmt.Errorf("read %s: %w", jobFile, err)
	}
	for _, module := range []string{"virtio_pci", "virtio_console"} { // of the ports; they may be part of the kernel
		_ = exec.Command("/sbin/modprobe", "-q", module).Run()
	}
	return j.run()
}

// run runs the command and kills the processes that it left.
func (j job) run() (int, error) {
	port, err := openPort(outputPort)
	if err != nil {
		return 0, err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	if err := os.Chdir(j.Dir); err != nil {
		return 0, fmt.Errorf("enter the folder of the command: %w", err)
	}
	program, err := exec.LookPath(j.Command[0])
	if err != nil {
		return 0, fmt.Errorf("find the command: %w", err)
	}
	p, err := os.StartProcess(program, j.Command, &os.ProcAttr{
		Files: []*os.File{null, port, port},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return 0, fmt.Errorf("start the command: %w", err)
	}
	// Process 1 has to wait for all orphans.
	var status unix.WaitStatus
	for pid := 0; pid != p.Pid; {
		pid, err = unix.Wait4(-1, &status, 0, nil)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return 0, fmt.Errorf("wait for the command: %w", err)
		}
	}
	_ = unix.Kill(-1, unix.SIGKILL) // all but this process; there may be none
	drain(port)
	if status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return status.ExitStatus(), nil
}

// openPort opens a port, for bytes as they are. It appears some time after its driver is loaded.
func openPort(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|unix.O_NOCTTY, 0)
	for tries := 0; err != nil && tries < 100; tries++ {
		time.Sleep(100 * time.Millisecond)
		f, err = os.OpenFile(name, os.O_WRONLY|unix.O_NOCTTY, 0)
	}
	if err != nil {
		return nil, err
	}
	t, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err == nil {
		t.Oflag &^= unix.OPOST
		t.Lflag &^= unix.ECHO | unix.ICANON | unix.ISIG
		err = unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, t)
	}
	if err != nil {
		return nil, fmt.Errorf("set up %s: %w", name, err)
	}
	return f, nil
}

// drain waits until the host has what was written (tcdrain).
func drain(port *os.File) { _ = unix.IoctlSetInt(int(port.Fd()), unix.TCSBRK, 1) }

func loopbackUp() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, lo)
}
