package kernel

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
)

// messages are netlink messages as they go to the kernel, one behind the other. They are
// numbered from 1 on, so that the kernel's answers tell which one they are about. All concern
// one table.
type messages struct {
	family model.Family
	table  string
	port   uint32 // of the connection, see socket
	b      []byte
	count  uint32
	err    error // the first thing that could not be encoded
}

// batchBegin is the number of the message that begins a batch. An answer to it is about the
// batch as a whole.
const batchBegin = 1

// begin appends the headers of a message. What is appended until end belongs to it.
func (m *messages) begin(msgType, flags uint16) (at int) {
	return m.header(unix.NFNL_SUBSYS_NFTABLES<<8|msgType, flags, nfproto(m.family), 0)
}

// header appends a struct nlmsghdr and a struct nfgenmsg.
func (m *messages) header(msgType, flags uint16, family byte, resource uint16) (at int) {
	at = len(m.b)
	m.count++
	const usual = 1 << 10
	if cap(m.b)-at < usual {
		m.b = slices.Grow(m.b, max(at, usual)) // append would grow large batches by a quarter
	}
	m.b = append(m.b, 0, 0, 0, 0) // the length
	m.b = binary.NativeEndian.AppendUint16(m.b, msgType)
	m.b = binary.NativeEndian.AppendUint16(m.b, unix.NLM_F_REQUEST|flags)
	m.b = binary.NativeEndian.AppendUint32(m.b, m.count)
	m.b = binary.NativeEndian.AppendUint32(m.b, m.port)
	m.b = append(m.b, family, unix.NFNETLINK_V0)
	m.b = binary.BigEndian.AppendUint16(m.b, resource)
	return at
}

func (m *messages) end(at int) {
	m.pad()
	binary.NativeEndian.PutUint32(m.b[at:], uint32(len(m.b)-at))
}

// batch appends the message that begins or ends a batch.
func (m *messages) batch(msgType uint16) {
	m.end(m.header(msgType, 0, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES))
}

// nest appends the header of an attribute. What is appended until close belongs to it.
func (m *messages) nest(attr uint16) (at int) {
	at = len(m.b)
	m.b = append(m.b, 0, 0) // the length
	m.b = binary.NativeEndian.AppendUint16(m.b, attr)
	return at
}

func (m *messages) close(at int) {
	n := len(m.b) - at
	if n > math.MaxUint16 && m.err == nil {
		m.err = fmt.Errorf("an attribute of %d bytes", n)
	}
	binary.NativeEndian.PutUint16(m.b[at:], uint16(n))
	m.pad()
}

func (m *messages) pad() {
	for len(m.b)%unix.NLA_ALIGNTO != 0 {
		m.b = append(m.b, 0)
	}
}

func (m *messages) bytes(attr uint16, b []byte) {
	at := m.nest(attr)
	m.b = append(m.b, b...)
	m.close(at)
}

func (m *messages) string(attr uint16, s string) {
	at := m.nest(attr)
	m.b = append(append(m.b, s...), 0)
	m.close(at)
}

func (m *messages) uint32(attr uint16, v uint32) {
	at := m.nest(attr)
	m.b = binary.BigEndian.AppendUint32(m.b, v)
	m.close(at)
}

func (m *messages) uint64(attr uint16, v uint64) {
	at := m.nest(attr)
	m.b = binary.BigEndian.AppendUint64(m.b, v)
	m.close(at)
}

// value appends data as the kernel wants it wherever a verdict is allowed as well.
func (m *messages) value(attr uint16, data string) {
	outer := m.nest(attr | unix.NLA_F_NESTED)
	at := m.nest(unix.NFTA_DATA_VALUE)
	m.b = append(m.b, data...)
	m.close(at)
	m.close(outer)
}

// nfproto is the kernel's number of a family of tables.
func nfproto(f model.Family) byte {
	if f == model.IPv6 {
		return unix.NFPROTO_IPV6
	}
	return unix.NFPROTO_IPV4
}

// first returns what the first attribute of a type holds, or nil.
func first(b []byte, want uint16) []byte {
	for data := range attributes(b, want) {
		return data
	}
	return nil
}

// attributes yields what the attributes of a type hold.
func attributes(b []byte, want uint16) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for {
			kind, data, rest, ok := cutAttribute(b)
			if !ok || kind == want && !yield(data) {
				return
			}
			b = rest
		}
	}
}

// cutAttribute returns the first attribute, and the bytes behind it.
func cutAttribute(b []byte) (kind uint16, data, rest []byte, ok bool) {
	const flags = unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER
	if len(b) < unix.SizeofNlAttr {
		return 0, nil, nil, false
	}
	length := int(binary.NativeEndian.Uint16(b))
	if length < unix.SizeofNlAttr || length > len(b) {
		return 0, nil, nil, false
	}
	kind = binary.NativeEndian.Uint16(b[2:]) &^ flags
	return kind, b[unix.SizeofNlAttr:length], b[min(len(b), aligned(length)):], true
}

// cutMessage returns the first message, with its header, and the bytes behind it.
func cutMessage(b []byte) (message, rest []byte, ok bool) {
	if len(b) < unix.SizeofNlMsghdr {
		return nil, nil, false
	}
	length := int(binary.NativeEndian.Uint32(b))
	if length < unix.SizeofNlMsghdr || length > len(b) {
		return nil, nil, false
	}
	return b[:length], b[min(len(b), aligned(length)):], true
}

// aligned is the place that so many bytes take in a message.
func aligned(n int) int { return (n + unix.NLA_ALIGNTO - 1) &^ (unix.NLA_ALIGNTO - 1) }

// readUint32 reads a number, 0 if there is none.
func readUint32(b []byte) uint32 {
	if len(b) < 4 {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

// readUint64 reads a number, 0 if there is none.
func readUint64(b []byte) uint64 {
	if len(b) < 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

// withoutZero returns a string without the zero that ends it in messages.
func withoutZero(b []byte) []byte {
	if n := len(b); n > 0 && b[n-1] == 0 {
		return b[:n-1]
	}
	return b
}
