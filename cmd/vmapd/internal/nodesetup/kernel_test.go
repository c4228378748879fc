package nodesetup

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A node that is a container, as with kind: the limit of connections is the host's, and the rest is set.
func TestRealKernelInANodeThatIsAContainer(t *testing.T) {
	inNamespaces(t, func() error {
		n := realNode(t)
		limit, err := n.readInt(fileMax)
		n.apply(Conntrack{MaxPerCore: new(int32(1)), Min: new(int32(limit + 1)), UDPTimeout: of(13 * time.Second)})
		if got := n.value(fileUDPTimeout); got != "13" || len(n.failed) != 1 {
			t.Errorf("the UDP timeout is %s, want 13; failures, want that of the limit: %v", got, n.failed)
		}
		return err
	})
}

// Here the files are the kernel's, in a network and mount namespace of the test's own.
// The container of the daemon after that of --init-only: /proc/sys and /sys can't be written.
func TestRealKernelReadOnlyAfterInitOnly(t *testing.T) {
	c := Conntrack{
		TCPBeLiberal: true, TCPEstablishedTimeout: new(of(12345 * time.Second)), TCPCloseWaitTimeout: new(of(77 * time.Second)),
		UDPTimeout: of(11 * time.Second), UDPStreamTimeout: of(22 * time.Second),
	}
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

		c.UDPTimeout = of(12 * time.Second)
		c.MaxPerCore, c.Min = new(int32(1)), new(int32(1<<30)) // more than any machine has
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
