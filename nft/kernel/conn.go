package kernel

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/nft"
)

// conn is one lasting netlink connection. Everything must go over the same one: a
// table that is owned takes orders from no other.
type conn struct {
	lib    *nftables.Conn // reads
	raw    *netlink.Conn  // the socket below lib
	socket syscall.RawConn

	// sent is how many bytes of messages went to the kernel.
	sent int
	// buffer is what one batch leaves to the next, see releaseBuffer.
	buffer []byte
}

// dial opens a connection in the network namespace of fd, or in the present one if fd
// is 0.
func dial(fd int) (*conn, error) {
	c := &conn{}
	keep := func(raw *netlink.Conn) error {
		c.raw = raw
		// The kernel says which attribute it did not like, and in words. Without this
		// option (before Linux 4.12) errors are only less precise.
		_ = raw.SetOption(netlink.ExtendedAcknowledge, true)
		return raw.SetReadBuffer(readBuffer)
	}
	lib, err := nftables.New(nftables.AsLasting(), nftables.WithNetNSFd(fd), nftables.WithSockOptions(keep))
	if err != nil {
		return nil, fmt.Errorf("open netlink connection: %w", err)
	}
	c.lib = lib
	if c.socket, err = c.raw.SyscallConn(); err != nil {
		return nil, errors.Join(fmt.Errorf("reach netlink socket: %w", err), lib.CloseLasting())
	}
	if err := c.readInLargePieces(); err != nil {
		return nil, errors.Join(err, lib.CloseLasting())
	}
	return c, nil
}

// readInLargePieces makes the kernel answer with up to 32 KiB at a time, as much as it
// does (netlink_recvmsg: max_recvmsg_len): it remembers the largest buffer that anybody
// read into, and the library peeks with a page. For each piece of a set's elements the
// kernel walks the set from its beginning, so that reading a large set costs the square
// of the number of pieces.
func (c *conn) readInLargePieces() error {
	request := netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETGEN, Flags: netlink.Request},
		Data:   []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, 0},
	}
	if _, err := c.raw.Send(request); err != nil {
		return fmt.Errorf("ask for the generation: %w", err)
	}
	var readErr error
	err := c.socket.Read(func(fd uintptr) bool {
		const large = 64 << 10
		_, _, readErr = unix.Recvfrom(int(fd), make([]byte, large), 0)
		return !errors.Is(readErr, unix.EAGAIN)
	})
	if err := errors.Join(err, readErr); err != nil {
		return fmt.Errorf("read the generation: %w", err)
	}
	return nil
}

// readBuffer holds the replies to one batch: an error at most for each message.
const readBuffer = 8 << 20

func (c *conn) close() error { return c.lib.CloseLasting() }

// newMessages begins a batch.
func (c *conn) newMessages() messages {
	const small = 4 << 10
	if c.buffer == nil {
		c.buffer = make([]byte, 0, small)
	}
	m := messages{b: c.buffer[:0], pid: c.raw.PID()}
	c.buffer = nil // it has one user
	m.add(batchMessage(unix.NFNL_MSG_BATCH_BEGIN))
	return m
}

// releaseBuffer gives back the memory that pieces of a large batch share.
func (c *conn) releaseBuffer() { c.buffer = nil }

// exchange sends messages in one batch and returns the kernel's first complaint. With commit
// unset the kernel checks the batch and then forgets it: that is what a batch without end
// means to it (nfnetlink_rcv_batch).
func (c *conn) exchange(msgs []netlink.Message, commit bool) error {
	batch := c.newMessages()
	for _, m := range msgs {
		batch.add(m)
	}
	if commit {
		batch.add(batchMessage(unix.NFNL_MSG_BATCH_END))
	}
	return c.send(&batch)
}

// send sends a batch and returns the kernel's first complaint. The library below would copy
// all of it twice.
func (c *conn) send(m *messages) error {
	if m.err != nil {
		return fmt.Errorf("encode: %w", m.err)
	}
	if err := c.growWriteBuffer(len(m.b)); err != nil {
		return err
	}
	c.sent += len(m.b)
	err := c.write(m)
	c.buffer = m.b
	if err != nil {
		return err
	}
	return c.complaint()
}

// write sends messages. The kernel has dealt with them when it returns.
func (c *conn) write(m *messages) error {
	var sendErr error
	err := c.socket.Write(func(fd uintptr) bool {
		sendErr = unix.Sendto(int(fd), m.b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		return !errors.Is(sendErr, unix.EAGAIN)
	})
	if err := errors.Join(err, sendErr); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	return nil
}

// complaint reads all that the kernel has answered and returns the first error. Only what
// fails is answered, and has been by the time that sending returns: the kernel works in the
// thread of the sender (netlink_unicast_kernel).
func (c *conn) complaint() error {
	var first error
	for {
		ready, err := c.hasAnswer()
		if err != nil {
			return fmt.Errorf("poll netlink socket: %w", err)
		}
		if !ready {
			return first
		}
		if _, err := c.raw.Receive(); err != nil {
			if !isReply(err) {
				return fmt.Errorf("receive: %w", err)
			}
			if first == nil {
				first = err
			}
		}
	}
}

func (c *conn) hasAnswer() (bool, error) {
	var n int
	var pollErr error
	err := c.socket.Control(func(fd uintptr) {
		for {
			n, pollErr = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
			if !errors.Is(pollErr, unix.EINTR) {
				return
			}
		}
	})
	return n > 0, errors.Join(err, pollErr)
}

func (c *conn) growWriteBuffer(size int) error {
	have, err := c.raw.WriteBuffer()
	if err != nil {
		return fmt.Errorf("read size of netlink write buffer: %w", err)
	}
	// The kernel counts its own overhead, too (netlink_alloc_large_skb, sk_sndbuf).
	if want := size + size/4 + 1<<16; have < want {
		if err := c.raw.SetWriteBuffer(want); err != nil {
			return fmt.Errorf("enlarge netlink write buffer to %d bytes: %w", want, err)
		}
	}
	return nil
}

// isReply reports whether an error is the kernel's answer to one message, rather than
// a failure of the connection itself.
func isReply(err error) bool { return sequence(err) != 0 }

func sequence(err error) uint32 {
	var op *netlink.OpError
	if !errors.As(err, &op) {
		return 0
	}
	return op.Sequence
}

// makeTable creates a table, its sets or both, replacing the table where the batch
// says so.
func (c *conn) makeTable(b *nft.Batch, name string, flags uint32) error {
	var msgs []netlink.Message
	add := func(m netlink.Message, err error) error {
		msgs = append(msgs, m)
		return err
	}
	var errs []error
	if b.DeleteTable {
		errs = append(errs, add(deleteTableMessage(b.Family, name)))
	}
	if b.CreateTable {
		errs = append(errs, add(tableMessage(b.Family, name, flags)))
	}
	for i, s := range b.AddSets {
		errs = append(errs, add(setMessage(b.Family, name, s, uint32(i+1))))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("encode table: %w", err)
	}
	if len(msgs) == 0 {
		return nil
	}
	return c.exchange(msgs, true)
}
