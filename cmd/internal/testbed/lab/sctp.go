package lab

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// HasSCTP reports whether the kernel has SCTP. It may load a module.
func HasSCTP() bool {
	fd, err := newSCTP("sctp4")
	if err == nil {
		_ = unix.Close(fd)
	}
	return err == nil
}

// newSCTP opens a socket for one association (RFC 6458, section 4), which has the calls of TCP. Package
// net takes it for one of TCP, and does not try more with it than to set TCP's options, in vain.
func newSCTP(network string) (fd int, err error) {
	domain := unix.AF_INET
	if isSCTP6(network) {
		domain = unix.AF_INET6
	}
	fd, err = unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_SCTP)
	return fd, os.NewSyscallError("socket", err)
}

func isSCTP6(network string) bool { return strings.HasSuffix(network, "6") }

// sockaddr is an address of a network's family; the zero Addr is any.
func sockaddr(network string, a netip.AddrPort) unix.Sockaddr {
	if isSCTP6(network) {
		s := &unix.SockaddrInet6{Port: int(a.Port())}
		if a.Addr().IsValid() {
			s.Addr = a.Addr().As16()
		}
		return s
	}
	s := &unix.SockaddrInet4{Port: int(a.Port())}
	if a.Addr().IsValid() {
		s.Addr = a.Addr().Unmap().As4()
	}
	return s
}

// listenSCTP listens on all addresses of a family.
func listenSCTP(network string, port uint16) (net.Listener, error) {
	const backlog = 128
	fd, err := newSCTP(network)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), network)
	defer f.Close()
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if isSCTP6(network) {
		err = errors.Join(err, unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1))
	}
	if err == nil {
		err = unix.Bind(fd, sockaddr(network, netip.AddrPortFrom(netip.Addr{}, port)))
	}
	if err == nil {
		err = unix.Listen(fd, backlog)
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s port %d: %w", network, port, err)
	}
	return net.FileListener(f)
}

// dialSCTP connects from an address, or from the one that the route has: otherwise the server is told all
// addresses of the client, and may send to any.
func dialSCTP(ctx context.Context, network string, source netip.Addr, to netip.AddrPort) (net.Conn, error) {
	if !source.IsValid() {
		route, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
		if err != nil {
			return nil, err
		}
		source = route.LocalAddr().(*net.UDPAddr).AddrPort().Addr()
		_ = route.Close()
	}
	fd, err := newSCTP(network)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), network)
	defer f.Close()
	// With this option, an ICMP error ends the attempt to connect, as it does with TCP.
	level, option := unix.IPPROTO_IP, unix.IP_RECVERR
	if isSCTP6(network) {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_RECVERR
	}
	err = errors.Join(unix.SetsockoptInt(fd, level, option, 1), retryEarly(fd), unix.Bind(fd, sockaddr(network, netip.AddrPortFrom(source, 0))))
	if err != nil {
		return nil, err
	}
	switch err := unix.Connect(fd, sockaddr(network, to)); {
	case err == nil:
	case errors.Is(err, unix.EINPROGRESS):
		if err := connected(ctx, fd); err != nil {
			return nil, os.NewSyscallError("connect", err)
		}
	default:
		return nil, os.NewSyscallError("connect", err)
	}
	return net.FileConn(f)
}

// retryEarly makes the kernel repeat the first packet after a tenth of a second in place of three: an ICMP error for
// the first comes while the socket is locked, and then does not end the attempt.
func retryEarly(fd int) error {
	const option, initial = 0, 100 // SCTP_RTOINFO, of struct sctp_rtoinfo; a time of 0 stays as it is
	info := binary.NativeEndian.AppendUint32(nil, 0)
	for _, ms := range []uint32{initial, 0, initial} { // the first, the most, the least
		info = binary.NativeEndian.AppendUint32(info, ms)
	}
	return unix.SetsockoptString(fd, unix.IPPROTO_SCTP, option, string(info))
}

// connected waits for the end of an attempt to connect.
func connected(ctx context.Context, fd int) error {
	const slice = 20 * time.Millisecond
	for ctx.Err() == nil {
		polled := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		n, err := unix.Poll(polled, int(slice.Milliseconds()))
		switch {
		case err != nil && !errors.Is(err, unix.EINTR):
			return err
		case n == 1:
			code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
			if err == nil && code != 0 {
				err = unix.Errno(code)
			}
			return err
		}
	}
	return ctx.Err()
}
