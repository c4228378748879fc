package userspace

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// The endpoint has its real address here, on the loopback interface of the namespace.
func TestInsideANetworkNamespace(t *testing.T) {
	inside := newNamespace(t)
	f, port := New(Options{Scope: Loopback}), freePort(t)
	f.open = sockets{
		listenTCP: in(inside, listenTCP), listenUDP: in(inside, listenUDP),
		dialTCP: in(inside, connectTCP), dialUDP: in(inside, connectUDP),
	}
	stop := running(t, f)
	defer stop()
	var l net.Listener
	if err := inside(func() (err error) {
		l, err = net.Listen("tcp", "10.0.0.2:8080")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer hangUp(l)
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			_, _ = io.WriteString(c, "from inside")
			hangUp(c)
		}
	}()
	s := modeltest.Snapshot(config(true), modeltest.OurNode(), web("TCP", port), slice(model.IPv4, "TCP", "10.0.0.2"))
	f.Follow(s)
	eventually(t, "the node port is open", func() bool { return f.Stats()[model.IPv4].Listeners == 1 })
	mustBeRefused(t, nodePort(model.IPv4, port)) // nobody listens outside
	var c net.Conn
	if err := inside(func() (err error) {
		c, err = net.Dial("tcp", nodePort(model.IPv4, port))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer hangUp(c)
	if got, err := io.ReadAll(within(t, c)); string(got) != "from inside" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

// in returns the function that opens a socket inside a network namespace.
func in[S any](inside func(func() error) error, open func(context.Context, netip.AddrPort) (S, error)) func(context.Context, netip.AddrPort) (S, error) {
	return func(ctx context.Context, a netip.AddrPort) (s S, err error) {
		err = inside(func() error {
			s, err = open(ctx, a)
			return err
		})
		return s, err
	}
}

// newNamespace returns how to call a function inside a new network namespace, where the
// loopback interface has 127.0.0.1, ::1 and 10.0.0.2.
func newNamespace(t *testing.T) func(func() error) error {
	t.Helper()
	calls, done := make(chan func()), make(chan struct{})
	ready := make(chan error)
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = loopbackUp(netip.MustParseAddr("10.0.0.2"))
		}
		ready <- err
		if err != nil {
			return
		}
		for call := range calls {
			call()
		}
	}()
	t.Cleanup(func() { <-done })
	err := <-ready
	if errors.Is(err, unix.EPERM) {
		t.Skip("making a network namespace needs CAP_SYS_ADMIN")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { close(calls) })
	return func(fn func() error) error {
		result := make(chan error, 1)
		calls <- func() { result <- fn() }
		return <-result
	}
}

// loopbackUp sets the loopback interface of the thread's namespace up, with one more
// address.
func loopbackUp(a netip.Addr) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	up, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	up.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, up); err != nil {
		return err
	}
	alias, err := unix.NewIfreq("lo:1")
	if err != nil {
		return err
	}
	if err := alias.SetInet4Addr(a.AsSlice()); err != nil {
		return err
	}
	return unix.IoctlIfreq(fd, unix.SIOCSIFADDR, alias)
}
