package kernel

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Socket is a netlink connection to nf_tables. The kernel works in the thread of the sender and of the reader
// (netlink_unicast_kernel, netlink_dump), so that an answer is there as soon as Send or the Receive before returns.
type Socket interface {
	// Port is the number by which the kernel knows the connection (nlmsg_pid).
	Port() uint32
	// Send sends messages, one behind the other.
	Send(messages []byte) error
	// Receive returns a datagram, which the next call may overwrite. The error is EAGAIN if there is none.
	Receive() ([]byte, error)
	Close() error
}

// thisKernel returns a dialer for the network namespace of fd, or the present one if fd is 0.
func thisKernel(fd int) func() (Socket, error) {
	return func() (Socket, error) {
		c, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: fd})
		if err != nil {
			return nil, fmt.Errorf("open netlink connection: %w", err)
		}
		// The kernel says which attribute it did not like, and in words. Without this
		// option (before Linux 4.12) errors are only less precise.
		_ = c.SetOption(netlink.ExtendedAcknowledge, true)
		if err := errors.Join(c.SetReadBuffer(readBuffer), c.SetWriteBuffer(writeBuffer)); err != nil {
			return nil, errors.Join(fmt.Errorf("prepare netlink connection: %w", err), c.Close())
		}
		return newKernelSocket(c)
	}
}

const (
	// readBuffer holds the replies to one batch: an error at most for each message.
	readBuffer = 8 << 20
	// writeBuffer is a limit; the kernel takes memory for a batch while it reads it.
	writeBuffer = 256 << 20
	// datagramSize makes the kernel answer with up to 32 KiB at a time, its most (netlink_recvmsg: max_recvmsg_len): for
	// each piece of a list it walks the set from its beginning.
	datagramSize = 64 << 10
	// datagrams are read by one system call. A restart among a million endpoints gets as many, and a call for each of them
	// would take a quarter of its time.
	datagrams = 16
)

// kernelSocket is a socket of this machine's kernel. Messages go past the library, which would copy all of a batch
// twice, and past the runtime's poller, which each answer would wake.
type kernelSocket struct {
	fd   int
	port uint32

	received [datagrams]mmsghdr
	parts    [datagrams]unix.Iovec // of the memory, one each
	memory   []byte
	next, n  int // of those that are received
}

// mmsghdr is struct mmsghdr of recvmmsg(2), which package unix does not have.
type mmsghdr struct {
	unix.Msghdr
	size uint32 // of the datagram
}

// newKernelSocket takes the socket of a connection.
func newKernelSocket(c *netlink.Conn) (*kernelSocket, error) {
	s := &kernelSocket{port: c.PID(), memory: make([]byte, datagrams*datagramSize)}
	for i := range s.received {
		s.parts[i].Base = &s.memory[i*datagramSize]
		s.parts[i].SetLen(datagramSize)
		s.received[i].Iov = &s.parts[i]
		s.received[i].SetIovlen(1)
	}
	var failed error
	raw, err := c.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { s.fd, failed = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
	}
	return s, errors.Join(err, failed, c.Close())
}

func (s *kernelSocket) Port() uint32 { return s.port }

func (s *kernelSocket) Close() error { return unix.Close(s.fd) }

func (s *kernelSocket) Send(messages []byte) error {
	return unix.Sendto(s.fd, messages, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
}

func (s *kernelSocket) Receive() ([]byte, error) {
	if s.next == s.n {
		n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&s.received[0])), datagrams,
			unix.MSG_DONTWAIT, 0, 0)
		if errno != 0 {
			return nil, errno
		}
		s.next, s.n = 0, int(n)
	}
	i := s.next
	s.next++
	return s.memory[i*datagramSize:][:s.received[i].size], nil
}
