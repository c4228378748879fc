package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model/nettest"
)

// netns is a network namespace of a test's own.
type netns struct{ file *os.File }

// newNetNS makes a network namespace. It is gone when the test ends.
func newNetNS(t testing.TB) netns {
	t.Helper()
	return netns{nettest.New(t)}
}

func (n netns) fd() int { return int(n.file.Fd()) }

// nft runs the nft command in the namespace and returns what it prints.
func (n netns) nft(t testing.TB, stdin string, args ...string) string {
	t.Helper()
	out, err := n.tryNFT(stdin, args...)
	if err != nil {
		t.Fatalf("nft %v: %v\n%s", args, err, out)
	}
	return out
}

func (n netns) tryNFT(stdin string, args ...string) (string, error) {
	type result struct {
		out []byte
		err error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread()
		if err := unix.Setns(n.fd(), unix.CLONE_NEWNET); err != nil {
			done <- result{err: err}
			return
		}
		cmd := exec.Command("nft", args...)
		cmd.Stdin = bytes.NewBufferString(stdin)
		out, err := cmd.CombinedOutput()
		done <- result{out, err}
	}()
	r := <-done
	return string(r.out), r.err
}

// What nft prints of a table's owner, and of the blank line behind.
var (
	ownerName = regexp.MustCompile(`(?m)( #)? progname .*$`)
	ownerFlag = regexp.MustCompile(`\tflags (?:owner)?\n(\tcomment .*\n)\n`)
)

// withoutOwner takes out of a listing what says that the table is owned: text loaded by
// nft has no owner.
func withoutOwner(listing string) string {
	return ownerFlag.ReplaceAllString(ownerName.ReplaceAllString(listing, ""), "$1")
}

// nowhere gives the namespace an interface that all packets vanish in, and returns its
// address.
func (n netns) nowhere(t testing.TB) netip.Addr {
	t.Helper()
	n.do(t, func() error {
		out, err := exec.Command("sh", "-c", "ip link set lo up && ip link add veth0 arp off type veth peer name veth1 && "+
			"ip link set veth1 up && ip link set veth0 up && ip addr add 10.0.0.1/24 dev veth0 && ip route add default via 10.0.0.254").CombinedOutput()
		if err != nil {
			return fmt.Errorf("ip: %w: %s", err, out)
		}
		return nil
	})
	return netip.MustParseAddr("10.0.0.1")
}

// connect sends the first packet of a connection, however slow the machine is. Nobody answers.
func (n netns) connect(t testing.TB, addr string) {
	t.Helper()
	to := netip.MustParseAddrPort(addr)
	n.do(t, func() error {
		s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(s)
		if err := unix.Connect(s, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}); !errors.Is(err, unix.EINPROGRESS) {
			return errors.Join(errors.New("the connection is not under way"), err)
		}
		return nil
	})
}

// do runs fn in the namespace.
func (n netns) do(t testing.TB, fn func() error) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		if err := unix.Setns(n.fd(), unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		done <- fn()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
