package nodesetup

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Here the files are the kernel's, in a network and mount namespace of the test's own.
func TestRealKernel(t *testing.T) {
	c := Conntrack{
		MaxPerCore: 32768, Min: 131072, TCPBeLiberal: true,
		TCPEstablishedTimeout: 12345 * time.Second, TCPCloseWaitTimeout: 77 * time.Second,
		UDPTimeout: 11 * time.Second, UDPStreamTimeout: 22 * time.Second,
	}
	inNamespaces(t, func() error {
		n := realNode(t)
		before, err := n.read(fileMax)
		if err != nil {
			return err
		}
		n.apply(c)
		for file, want := range map[string]string{
			fileMax:                   before, // the whole machine's
			fileTCPEstablishedTimeout: "12345",
			fileTCPCloseWaitTimeout:   "77",
			fileUDPTimeout:            "11",
			fileUDPStreamTimeout:      "22",
			fileTCPBeLiberal:          "1",
		} {
			if got, err := n.read(file); got != want || err != nil {
				t.Errorf("%s is %s, %v, want %s", file, got, err, want)
			}
		}
		for _, err := range n.failed {
			if file, _, _ := strings.Cut(err.Error(), " "); file != fileMax && file != fileHashSize {
				t.Errorf("unexpected: %v", err)
			}
		}
		return nil
	})
}

// A node that is a container, as with kind: the limit of connections is the host's, and the rest is set.
func TestRealKernelInANodeThatIsAContainer(t *testing.T) {
	inNamespaces(t, func() error {
		n := realNode(t)
		limit, err := n.readInt(fileMax)
		if err != nil {
			return err
		}
		for _, tt := range []struct {
			name          string
			limit, failed int
		}{
			{"a lower limit is wanted", limit - 1, 0},
			{"a higher limit is wanted", limit + 1, 1},
		} {
			n.apply(Conntrack{MaxPerCore: 1, Min: int32(tt.limit), UDPTimeout: 13 * time.Second})
			if got, err := n.read(fileUDPTimeout); got != "13" || err != nil {
				t.Errorf("%s: the UDP timeout is %s, %v; want 13", tt.name, got, err)
			}
			if len(n.failed) != tt.failed {
				t.Errorf("%s: %d failures, want %d: %v", tt.name, len(n.failed), tt.failed, n.failed)
			}
		}
		return nil
	})
}

// A higher limit that a container can't lower is no failure, whatever forbids it; what is too
// low is one.
func TestRealKernelReadOnly(t *testing.T) {
	inNamespaces(t, func() error {
		n := realNode(t)
		limit, err := n.readInt(fileMax)
		if err != nil {
			return err
		}
		if err := errors.Join(
			unix.Mount("/proc/sys", "/proc/sys", "", unix.MS_BIND|unix.MS_REC, ""),
			unix.Mount("", "/proc/sys", "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""),
		); err != nil {
			return err
		}
		n.apply(Conntrack{MaxPerCore: 1, Min: int32(limit - 1)})
		n.quiet()
		n.apply(Conntrack{MaxPerCore: 1, Min: int32(limit + 1)})
		if len(n.failed) == 0 || !errors.Is(n.failed[0], unix.EROFS) {
			t.Errorf("with a lower limit than wanted: %v, want that it is read-only", n.failed)
		}
		return nil
	})
}

// The container of the daemon after that of --init-only: /proc/sys and /sys can't be written.
func TestRealKernelReadOnlyAfterInitOnly(t *testing.T) {
	c := Conntrack{TCPBeLiberal: true, TCPEstablishedTimeout: 12345 * time.Second, UDPTimeout: 11 * time.Second}
	inNamespaces(t, func() error {
		n := realNode(t)
		n.apply(c)
		if err := errors.Join(n.failed...); err != nil {
			return err
		}
		for _, dir := range []string{"/proc/sys", "/sys"} {
			if err := unix.Mount(dir, dir, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
				return err
			}
			if err := unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
				return err
			}
		}
		n.log.Reset()
		n.apply(c)
		n.quiet()

		c.UDPTimeout = 12 * time.Second
		c.MaxPerCore, c.Min = 1, 1<<30 // more than any machine has
		n.apply(c)
		var got []string
		for _, err := range n.failed {
			file, rest, _ := strings.Cut(err.Error(), " ")
			if got = append(got, file); !errors.Is(err, unix.EROFS) {
				t.Errorf("%v, want that it is read-only", err)
			}
			if file == fileUDPTimeout && !strings.HasPrefix(rest, "should be 12 and is 11: ") {
				t.Errorf("the error should name the values: %v", err)
			}
		}
		if want := []string{fileMax, fileHashSize, fileUDPTimeout}; strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("failed: %v, want %v", got, want)
		}
		return nil
	})
}

// Whoever is not root may read what there is, and that is enough if it is right.
func TestRealKernelWithoutPrivilege(t *testing.T) {
	inNamespaces(t, func() error {
		n := realNode(t)
		c := Conntrack{UDPTimeout: 11 * time.Second}
		n.apply(c)
		if err := errors.Join(n.failed...); err != nil {
			return err
		}
		const nobody = 65534
		if _, _, err := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody); err != 0 {
			return fmt.Errorf("%w a second user in this user namespace: %w", errLacking, err)
		}
		n.log.Reset()
		c.MaxPerCore = 4 // of four connections, which every hash table has room for
		n.apply(c)
		for _, err := range n.failed {
			if !strings.HasPrefix(err.Error(), fileMax+" ") {
				t.Errorf("unexpected: %v", err)
			}
		}
		n.apply(Conntrack{UDPTimeout: 12 * time.Second})
		if len(n.failed) != 1 || !errors.Is(n.failed[0], fs.ErrPermission) {
			t.Errorf("failed: %v, want one for lack of permission", n.failed)
		}
		return nil
	})
}

func realNode(t *testing.T) *node {
	t.Helper()
	n := &node{t: t}
	n.Options = Options{Log: slog.New(slog.NewTextHandler(&n.log, nil))}
	return n
}

var errLacking = errors.New("this test needs")

// inNamespaces calls fn on a thread with a network namespace and mounts of its own.
func inNamespaces(t *testing.T, fn func() error) {
	t.Helper()
	result := make(chan error, 1)
	go func() {
		err := errors.New("the test ended early")
		defer func() { result <- err }()
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		if e := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS); e != nil {
			err = fmt.Errorf("%w CAP_SYS_ADMIN to make namespaces: %w", errLacking, e)
			return
		}
		// What is mounted here shall not show outside.
		if err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return
		}
		err = fn()
	}()
	err := <-result
	if errors.Is(err, errLacking) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}
