package kernel

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
)

// messages are one batch as it goes to the kernel: netlink messages, one behind the other.
// They are numbered from 1 on, so that the kernel's answers tell which one they are about.
type messages struct {
	b     []byte
	pid   uint32
	count uint32
	err   error // what could not be encoded first
}

// batchBegin is the number of the message that begins a batch. An answer to it is about the
// batch as a whole.
const batchBegin = 1

// begin appends the header of a message, which what is appended until end belongs to.
func (m *messages) begin(h netlink.Header) (at int) {
	at = len(m.b)
	m.count++
	m.b = append(m.b, 0, 0, 0, 0) // the length
	m.b = binary.NativeEndian.AppendUint16(m.b, uint16(h.Type))
	m.b = binary.NativeEndian.AppendUint16(m.b, uint16(h.Flags))
	m.b = binary.NativeEndian.AppendUint32(m.b, m.count)
	m.b = binary.NativeEndian.AppendUint32(m.b, m.pid)
	return at
}

func (m *messages) end(at int) {
	m.pad()
	binary.NativeEndian.PutUint32(m.b[at:], uint32(len(m.b)-at))
}

func (m *messages) add(one netlink.Message) {
	at := m.begin(one.Header)
	m.b = append(m.b, one.Data...)
	m.end(at)
}

// nest appends the header of an attribute, which what is appended until close belongs to.
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

// value appends data as the kernel wants it wherever it may be a verdict as well.
func (m *messages) value(attr uint16, data string) {
	outer := m.nest(attr | unix.NLA_F_NESTED)
	at := m.nest(unix.NFTA_DATA_VALUE)
	m.b = append(m.b, data...)
	m.close(at)
	m.close(outer)
}

// header is that of a message about our tables.
func header(msgType int, flags netlink.HeaderFlags) netlink.Header {
	return netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | msgType), Flags: netlink.Request | flags}
}

// appendGenmsg appends a struct nfgenmsg: family, version, resource ID.
func appendGenmsg(b []byte, f model.Family) []byte {
	return append(b, byte(tableFamily(f)), unix.NFNETLINK_V0, 0, 0)
}

// attr is the size of an attribute with so many bytes in it.
func attr(n int) int { return (unix.SizeofNlAttr + n + unix.NLA_ALIGNTO - 1) &^ (unix.NLA_ALIGNTO - 1) }
