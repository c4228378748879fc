package userspace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Control messages of SCTP, and flags in them (linux/sctp.h, RFC 6458, section 5.3).
const (
	sctpSndInfo   = 2 // struct sctp_sndinfo
	sctpRcvInfo   = 3 // struct sctp_rcvinfo
	sctpUnordered = 1

	sndInfoSize = 16
	rcvInfoSize = 28
)

// maxMessage bounds the memory of a message of SCTP. It is more than the kernel's buffer for sending is at first.
const maxMessage = 256 << 10

// message is one of SCTP.
type message struct {
	data      []byte
	stream    uint16
	protocol  [4]byte // the payload's identifier, which the kernel does not look at
	unordered bool
}

// pumpMessages copies messages from one association to the other until the end. It keeps their boundaries, streams,
// order and identifiers. If the receiver has fewer streams, some share one.
func (e *env) pumpMessages(to, from *net.TCPConn) error {
	dst, src, err := rawConns(to, from)
	if err != nil {
		return err
	}
	if err := errors.Join(setOption(src, sctpRecvRcvInfo), setOption(dst, sctpNoDelay)); err != nil {
		return err
	}
	_, streams := streamsOf(to)
	for {
		if err := awaitReadable(src); err != nil {
			return err
		}
		buffer := e.buffers.Get().(*[maxDatagram]byte)
		long := longMessage{env: e, to: to, from: from}
		m, err := receiveMessage(src, buffer[:], &long)
		if err == nil && len(m.data) > 0 {
			m.stream %= streams
			err = m.send(dst)
		}
		long.end()
		e.buffers.Put(buffer)
		if err != nil || len(m.data) == 0 {
			return err
		}
	}
}

func setOption(c syscall.RawConn, option int) error {
	var err error
	return errors.Join(c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_SCTP, option, 1) }), err)
}

// longMessage is a message that is longer than a buffer. There are few at a time, and each has to pass in some time, so
// that clients that send a part of one, or endpoints that do not read, hold little memory, and not for long.
type longMessage struct {
	env      *env
	to, from *net.TCPConn
	limit    *time.Timer // nil before its begin
}

// begin waits for its turn and returns the message's memory. The association ends if the message has not passed in time.
func (l *longMessage) begin() ([]byte, error) {
	turn := time.NewTimer(l.env.limits.message)
	defer turn.Stop()
	select {
	case l.env.long <- struct{}{}:
	case <-l.env.ctx.Done():
		return nil, l.env.ctx.Err()
	case <-turn.C:
		return nil, fmt.Errorf("%d messages of more than %d bytes are under way", cap(l.env.long), maxDatagram)
	}
	l.limit = time.AfterFunc(l.env.limits.message, func() {
		reset(l.from)
		reset(l.to)
	})
	return make([]byte, maxMessage), nil
}

func (l *longMessage) end() {
	if l.limit != nil {
		l.limit.Stop()
		<-l.env.long
	}
}

// receiveMessage receives a message, by buffer unless it is longer. There is no data at the end of the association.
func receiveMessage(c syscall.RawConn, buffer []byte, long *longMessage) (m message, err error) {
	var control [128]byte
	for {
		var n, controls, flags int
		waitErr := c.Read(func(fd uintptr) bool {
			n, controls, flags, _, err = unix.Recvmsg(int(fd), buffer[len(m.data):], control[:], 0)
			return !errors.Is(err, unix.EAGAIN)
		})
		if err = errors.Join(waitErr, err); err != nil || n == 0 {
			return m, err
		}
		m.data = buffer[:len(m.data)+n]
		if flags&unix.MSG_EOR != 0 {
			return m, m.read(control[:controls])
		}
		if len(m.data) < len(buffer) {
			continue // the kernel has delivered a part
		}
		if len(buffer) == maxMessage {
			return m, fmt.Errorf("a message of more than %d bytes", maxMessage)
		}
		longer, err := long.begin()
		if err != nil {
			return m, err
		}
		m.data, buffer = longer[:copy(longer, m.data)], longer
	}
}

// read reads what the kernel tells of a message.
func (m *message) read(control []byte) error {
	list, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return err
	}
	for _, c := range list {
		if c.Header.Level == unix.IPPROTO_SCTP && c.Header.Type == sctpRcvInfo && len(c.Data) >= rcvInfoSize {
			m.stream = binary.NativeEndian.Uint16(c.Data)
			m.unordered = binary.NativeEndian.Uint16(c.Data[4:])&sctpUnordered != 0
			copy(m.protocol[:], c.Data[8:])
			return nil
		}
	}
	return errors.New("a message without its stream")
}

func (m *message) send(c syscall.RawConn) error {
	control := make([]byte, unix.CmsgSpace(sndInfoSize))
	header := (*unix.Cmsghdr)(unsafe.Pointer(&control[0]))
	header.Level, header.Type = unix.IPPROTO_SCTP, sctpSndInfo
	header.SetLen(unix.CmsgLen(sndInfoSize))
	info := control[unix.CmsgLen(0):]
	binary.NativeEndian.PutUint16(info, m.stream)
	if m.unordered {
		binary.NativeEndian.PutUint16(info[2:], sctpUnordered)
	}
	copy(info[4:], m.protocol[:])
	var err error
	waitErr := c.Write(func(fd uintptr) bool {
		_, err = unix.SendmsgN(int(fd), m.data, control, nil, unix.MSG_NOSIGNAL)
		return !errors.Is(err, unix.EAGAIN)
	})
	return errors.Join(waitErr, err)
}
