package userspace

import (
	"encoding/binary"
	"net"
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The options by which a socket tells where packets come in: IP_PKTINFO and IPV6_RECVPKTINFO for
// datagrams. A connection has the interface of its first packet in the same control message, which
// IP_PKTOPTIONS and IPV6_2292PKTOPTIONS return (do_ip_getsockopt, do_ipv6_getsockopt).
const (
	ipPktOptions       = 9
	ipv62292PktOptions = 6
	ipv62292PktInfo    = 2
)

// tellInterface has a listener's socket tell the interface of each connection or datagram. Where
// the kernel can't, connections have no interface, and are from no pod that is known by it.
func tellInterface(c syscall.RawConn, at netip.Addr, stream bool) {
	_ = c.Control(func(fd uintptr) {
		switch {
		case at.Is4():
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
		case stream:
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, ipv62292PktInfo, 1)
		default:
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
		}
	})
}

// interfaceOf returns the name of the interface by which a connection came in, if a decision
// depends on it.
func (e *env) interfaceOf(c *net.TCPConn) string {
	if !e.byDevice.Load() {
		return ""
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return ""
	}
	level, option := uintptr(unix.IPPROTO_IP), uintptr(ipPktOptions)
	if sourceOf(c).Addr().Is6() {
		level, option = unix.IPPROTO_IPV6, ipv62292PktOptions
	}
	var buffer [256]byte
	size := 0
	_ = raw.Control(func(fd uintptr) { size, _ = readOption(int(fd), level, option, buffer[:]) })
	return interfaceIn(buffer[:size])
}

// readOption reads an option of a socket that is more than a number, and returns its size in bytes.
func readOption[T any](fd int, level, option uintptr, into []T) (int, error) {
	size := uint32(len(into)) * uint32(unsafe.Sizeof(into[0]))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), level, option, uintptr(unsafe.Pointer(&into[0])), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return 0, errno
	}
	return int(size), nil
}

// interfaceIn returns the interface that control messages name; "" for none.
func interfaceIn(control []byte) string {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return ""
	}
	for _, m := range messages {
		var index uint32
		switch {
		case m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_PKTINFO && len(m.Data) >= unix.SizeofInet4Pktinfo:
			index = binary.NativeEndian.Uint32(m.Data)
		case m.Header.Level == unix.IPPROTO_IPV6 && (m.Header.Type == unix.IPV6_PKTINFO || m.Header.Type == ipv62292PktInfo) && len(m.Data) >= unix.SizeofInet6Pktinfo:
			index = binary.NativeEndian.Uint32(m.Data[16:])
		default:
			continue
		}
		if i, err := net.InterfaceByIndex(int(index)); err == nil {
			return i.Name
		}
	}
	return ""
}
