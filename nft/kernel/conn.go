package kernel

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/internal/nfnl"
)

// conn is one lasting netlink connection. Everything must go over the same one: a
// table that is owned takes orders from no other.
type conn struct {
	socket Socket

	// buffer is the memory that one batch leaves to the next; send gives it back.
	buffer []byte
	// interrupted: the rules changed while a list was read.
	interrupted bool
	// refused are the numbers of the messages that the kernel refused in the last exchange.
	refused []uint32
}

func (o Options) dial() (*conn, error) {
	dial := o.Dial
	if dial == nil {
		dial = thisKernel(o.NetNS)
	}
	s, err := dial()
	if err != nil {
		return nil, err
	}
	return &conn{socket: s}, nil
}

func (c *conn) close() error { return c.socket.Close() }

func (c *conn) newBatch(f model.Family, table string) messages {
	m := messages{family: f, table: table, b: c.buffer[:0]}
	c.buffer = nil // it has one user
	m.batch(unix.NFNL_MSG_BATCH_BEGIN)
	return m
}

// commit ends a batch, sends it and returns the kernel's first complaint.
func (c *conn) commit(m *messages) error {
	m.batch(unix.NFNL_MSG_BATCH_END)
	return c.try(m)
}

// try sends a batch without its end: the kernel checks it and then forgets it (nfnetlink_rcv_batch).
func (c *conn) try(m *messages) error {
	err := c.exchange(m, func([]byte) error { return nil })
	c.buffer = m.b
	return err
}

// exchange sends messages and passes on the attributes of the answers. It returns
// the first error, and leaves no answer behind.
func (c *conn) exchange(m *messages, each func(attrs []byte) error) error {
	if m.err != nil {
		return fmt.Errorf("encode: %w", m.err)
	}
	if err := c.socket.Send(m.b); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	c.refused = nil
	var first error
	for {
		answer, err := c.socket.Receive()
		if errors.Is(err, unix.EAGAIN) {
			return first
		}
		if err == nil {
			err = c.read(answer, each)
		} else if err = fmt.Errorf("receive: %w", err); !errors.Is(err, unix.ENOBUFS) { // else answers had no room
			return err
		}
		first = cmp.Or(first, err)
	}
}

func (c *conn) read(datagram []byte, each func(attrs []byte) error) error {
	for len(datagram) > 0 {
		message, rest, ok := nfnl.CutMessage(datagram)
		if !ok {
			return errors.New("a message is cut off")
		}
		datagram = rest
		kind, flags := binary.NativeEndian.Uint16(message[4:]), binary.NativeEndian.Uint16(message[6:])
		body := message[unix.SizeofNlMsghdr:]
		c.interrupted = c.interrupted || flags&unix.NLM_F_DUMP_INTR != 0
		switch {
		case kind == unix.NLMSG_ERROR || kind == unix.NLMSG_DONE:
			sequence := binary.NativeEndian.Uint32(message[8:])
			if err := replyError(kind, flags, sequence, body); err != nil {
				c.refused = append(c.refused, sequence)
				return err
			}
		case kind>>8 != unix.NFNL_SUBSYS_NFTABLES:
		default:
			if err := each(body[min(len(body), nfnl.HeaderSize):]); err != nil {
				return err
			}
		}
	}
	return nil
}

// replyError reads an error in the kernel's answer to a message, or nil if all is well: an
// error number, behind it the message that it is about, and attributes that say more.
func replyError(kind, flags uint16, sequence uint32, body []byte) error {
	const code = 4 // the first of struct nlmsgerr
	if len(body) < code {
		return nil // the end of a list
	}
	number := int32(binary.NativeEndian.Uint32(body))
	if number == 0 {
		return nil
	}
	if unix.Errno(-number) == unix.EPERM && sequence == batchBegin {
		// The kernel checks the capability before it looks at any message, and answers to the first (nfnetlink_rcv). A table
		// that another process owns is a matter of a later one: the first only begins the batch.
		return ErrNotPermitted
	}
	failed := &netlink.OpError{Op: "answer", Err: unix.Errno(-number), Sequence: sequence}
	if _, attrs, ok := nfnl.CutMessage(body[code:]); ok && kind == unix.NLMSG_ERROR && flags&unix.NLM_F_ACK_TLVS != 0 {
		failed.Message = nfnl.String(attrs, unix.NLMSGERR_ATTR_MSG)
	}
	return failed
}

// list passes on the attributes of all objects of a kind that our table has or, with a name,
// those in the set or chain of that name.
func (c *conn) list(msgType uint16, f model.Family, name string, each func(attrs []byte) error) error {
	const objectName = 2 // NFTA_SET_ELEM_LIST_SET, NFTA_RULE_CHAIN
	m := messages{family: f, table: nft.TableName}
	at := m.object(msgType, unix.NLM_F_DUMP)
	if name != "" {
		m.string(objectName, name)
	}
	m.end(at)
	return c.exchange(&m, func(attrs []byte) error {
		if nfnl.String(attrs, objectTable) != nft.TableName {
			return nil // chains are listed of all tables
		}
		return each(attrs)
	})
}

func (c *conn) elements(f model.Family, set string, each func(element []byte) error) error {
	return c.list(unix.NFT_MSG_GETSETELEM, f, set, func(message []byte) error {
		for element := range nfnl.Elements(message) {
			if err := each(element); err != nil {
				return err
			}
		}
		return nil
	})
}

func (c *conn) table(f model.Family) (flags uint32, err error) {
	m := messages{family: f, table: nft.TableName}
	m.end(m.object(unix.NFT_MSG_GETTABLE, 0))
	err = c.exchange(&m, func(attrs []byte) error {
		flags = nfnl.Uint32(nfnl.First(attrs, unix.NFTA_TABLE_FLAGS))
		return nil
	})
	return flags, err
}

// isReply reports whether an error is the kernel's answer to one message, rather than
// a failure of the connection itself.
func isReply(err error) bool {
	op, ok := errors.AsType[*netlink.OpError](err)
	return ok && op.Sequence != 0
}

// RemoveTables deletes the tables of both families that have a name. It is no error if a table is missing, or if the
// kernel has no nf_tables. Without permission, the error is [ErrNotPermitted] alone.
func RemoveTables(o Options, name string) error {
	c, err := o.dial()
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = c.close() }()
	var errs []error
	for _, f := range model.Families {
		m := c.newBatch(f, name)
		m.deleteTable()
		err := c.commit(&m)
		switch {
		case err == nil, errors.Is(err, unix.ENOENT), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EAFNOSUPPORT):
			continue // also without nf_tables: nobody takes its batches (nfnetlink_rcv_batch)
		case errors.Is(err, ErrNotPermitted):
			return ErrNotPermitted
		case errors.Is(err, unix.EPERM):
			err = ErrOwned
		}
		errs = append(errs, fmt.Errorf("delete %v table %s: %w", f, name, err))
	}
	return errors.Join(errs...)
}
