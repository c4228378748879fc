package userspace

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// sockets are the functions that open sockets. Tests replace the two that dial, as their
// endpoints are servers on loopback.
type sockets struct {
	listenTCP  func(ctx context.Context, at netip.AddrPort) (*net.TCPListener, error)
	listenUDP  func(ctx context.Context, at netip.AddrPort) (*net.UDPConn, error)
	listenSCTP func(ctx context.Context, at netip.AddrPort) (*net.TCPListener, error)
	dialTCP    func(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error)
	dialUDP    func(ctx context.Context, to netip.AddrPort) (*net.UDPConn, error)
	dialSCTP   func(ctx context.Context, to netip.AddrPort, streams uint16) (*net.TCPConn, error)
}

func listenTCP(ctx context.Context, at netip.AddrPort) (*net.TCPListener, error) {
	var config net.ListenConfig
	config.SetMultipathTCP(false) // on loopback there is one path
	l, err := config.Listen(ctx, network("tcp", at), at.String())
	if err != nil {
		return nil, cause(err)
	}
	return l.(*net.TCPListener), nil
}

func listenUDP(ctx context.Context, at netip.AddrPort) (*net.UDPConn, error) {
	c, err := new(net.ListenConfig).ListenPacket(ctx, network("udp", at), at.String())
	if err != nil {
		return nil, cause(err)
	}
	return c.(*net.UDPConn), nil
}

func connectTCP(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error) {
	c, err := new(net.Dialer).DialTCP(ctx, network("tcp", to), netip.AddrPort{}, to)
	return c, cause(err)
}

func connectUDP(ctx context.Context, to netip.AddrPort) (*net.UDPConn, error) {
	c, err := new(net.Dialer).DialUDP(ctx, network("udp", to), netip.AddrPort{}, to)
	return c, cause(err)
}

func network(name string, a netip.AddrPort) string {
	if a.Addr().Is4() {
		return name + "4"
	}
	return name + "6"
}

// cause removes what package net adds to an error: our errors have the step and the
// addresses.
func cause(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	return err
}

// ours reports whether an error is about this process or its node, so that another
// endpoint would not help.
func ours(err error) bool {
	list := []error{unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.EADDRNOTAVAIL}
	return slices.ContainsFunc(list, func(e error) bool { return errors.Is(err, e) })
}

// awaitReadable returns when data, or an error, can be read. Thousands of goroutines
// may wait, and none needs a buffer of 64 KiB meanwhile.
func awaitReadable(raw syscall.RawConn) error {
	return raw.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n != 0 || err != nil // reading tells which
	})
}
