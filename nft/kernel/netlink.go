package kernel

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
)

// messages are netlink messages as they go to the kernel, one behind the other. They are numbered from 1 on, so that
// the kernel's answers name the one they are about. All concern one table.
type messages struct {
	family model.Family
	table  string
	b      []byte
	count  uint32
	err    error // the first thing that could not be encoded
}

// batchBegin is the number of the message that begins a batch. An answer to it is about the batch as a whole.
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
	m.b = append(m.b, 0, 0, 0, 0) // the port, which the kernel knows
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

func nfproto(f model.Family) byte {
	return [...]byte{model.IPv4: unix.NFPROTO_IPV4, model.IPv6: unix.NFPROTO_IPV6}[f]
}
