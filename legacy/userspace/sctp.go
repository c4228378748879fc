package userspace

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Options of SCTP (linux/sctp.h, RFC 6458).
const (
	sctpInitMsg     = 2  // struct sctp_initmsg
	sctpNoDelay     = 3  // int
	sctpStatus      = 14 // struct sctp_status
	sctpRecvRcvInfo = 32 // int
)

// maxStreams bounds the streams of an association in each direction. Each takes memory of the kernel, and either end may ask
// for 65,535. An association with fewer than its ends asked for is usual (RFC 9260, 5.1.1).
const maxStreams = 64

// newSCTP opens a socket for one association (RFC 6458, section 4), which has the calls of TCP. Package
// net takes it for one of TCP, and does not try more with it than to set TCP's options, in vain. streams is the
// number of those to send on.
func newSCTP(at netip.AddrPort, streams uint16) (fd int, err error) {
	domain := unix.AF_INET
	if at.Addr().Is6() {
		domain = unix.AF_INET6
	}
	fd, err = unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_SCTP)
	if err != nil {
		return 0, os.NewSyscallError("socket", err)
	}
	if domain == unix.AF_INET6 {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1)
	}
	const rest = 2 * 2 // of struct sctp_initmsg: 0 leaves the system's values
	init := binary.NativeEndian.AppendUint16(binary.NativeEndian.AppendUint16(nil, streams), maxStreams)
	init = append(init, make([]byte, rest)...)
	if err = errors.Join(err, unix.SetsockoptString(fd, unix.IPPROTO_SCTP, sctpInitMsg, string(init))); err != nil {
		return 0, errors.Join(os.NewSyscallError("setsockopt", err), unix.Close(fd))
	}
	return fd, nil
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

func listenSCTP(_ context.Context, at netip.AddrPort) (*net.TCPListener, error) {
	return listenStreams(at, maxStreams)
}

func listenStreams(at netip.AddrPort, streams uint16) (*net.TCPListener, error) {
	fd, err := newSCTP(at, streams)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "sctp") // net duplicates it
	defer f.Close()
	if err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err == nil {
		err = os.NewSyscallError("bind", unix.Bind(fd, sockaddr(at)))
	}
	if err == nil {
		err = os.NewSyscallError("listen", unix.Listen(fd, unix.SOMAXCONN))
	}
	if err != nil {
		return nil, err
	}
	l, err := net.FileListener(f)
	if err != nil {
		return nil, cause(err)
	}
	return l.(*net.TCPListener), nil
}

// connectSCTP connects from one address: otherwise the endpoint is told all addresses of the node, those of Services
// among them, and may send to any. streams is the number of those to send on.
func connectSCTP(ctx context.Context, to netip.AddrPort, streams uint16) (*net.TCPConn, error) {
	source, err := sourceTo(ctx, to)
	if err != nil {
		return nil, err
	}
	fd, err := newSCTP(to, streams)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "sctp") // net duplicates it
	defer f.Close()
	// With this option, an ICMP error ends the attempt to connect, as it does with TCP.
	level, option := unix.IPPROTO_IP, unix.IP_RECVERR
	if to.Addr().Is6() {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_RECVERR
	}
	err = errors.Join(unix.SetsockoptInt(fd, level, option, 1), unix.Bind(fd, sockaddr(netip.AddrPortFrom(source, 0))))
	if err != nil {
		return nil, err
	}
	if err := unix.Connect(fd, sockaddr(to)); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		return nil, os.NewSyscallError("connect", err)
	}
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, cause(err)
	}
	c := conn.(*net.TCPConn)
	if err := awaitConnected(ctx, c); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	_ = unix.SetsockoptInt(fd, level, option, 0) // later errors need not last
	return c, nil
}

// sourceTo returns the address that the route to an endpoint has.
func sourceTo(ctx context.Context, to netip.AddrPort) (netip.Addr, error) {
	route, err := connectUDP(ctx, to)
	if err != nil {
		return netip.Addr{}, err
	}
	source := route.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
	return source, route.Close()
}

// awaitConnected waits for the end of an attempt to connect, or of ctx.
func awaitConnected(ctx context.Context, c *net.TCPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	var failed error
	err = raw.Write(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, 0)
		if n == 0 && err == nil {
			return false
		}
		code, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		if failed = err; err == nil && code != 0 {
			failed = unix.Errno(code)
		}
		return true
	})
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return os.NewSyscallError("connect", errors.Join(err, failed))
}

// streamsOf returns the numbers of streams of an association: those to receive on, and those to send on.
func streamsOf(c *net.TCPConn) (in, out uint16) {
	const inAt, outAt = 16, 18 // in struct sctp_status
	var status [256]byte
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _, _ = readOption(int(fd), unix.IPPROTO_SCTP, sctpStatus, status[:]) })
	}
	return max(1, binary.NativeEndian.Uint16(status[inAt:])), max(1, binary.NativeEndian.Uint16(status[outAt:]))
}
