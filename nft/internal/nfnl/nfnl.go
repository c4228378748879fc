// Package nfnl reads what the kernel sends about nf_tables: messages of nfnetlink, and their attributes.
package nfnl

import (
	"encoding/binary"
	"errors"
	"iter"

	"golang.org/x/sys/unix"
)

// ErrNotPermitted indicates that this process must not administer the network.
var ErrNotPermitted = errors.New("CAP_NET_ADMIN is missing: run vmapd as root, or in a container " +
	"with the capability NET_ADMIN; one of a user namespace applies to its own network namespaces only")

// HeaderSize is the size of struct nfgenmsg, which begins with the family and stands before the attributes.
const HeaderSize = 4

// First returns what the first attribute of a type holds, or nil.
func First(b []byte, want uint16) []byte {
	for data := range Attributes(b, want) {
		return data
	}
	return nil
}

// Attributes yields what the attributes of a type hold, up to one that is cut off.
func Attributes(b []byte, want uint16) iter.Seq[[]byte] {
	const flags = unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER
	return func(yield func([]byte) bool) {
		for len(b) >= unix.SizeofNlAttr {
			length := int(binary.NativeEndian.Uint16(b))
			if length < unix.SizeofNlAttr || length > len(b) {
				return
			}
			if binary.NativeEndian.Uint16(b[2:])&^flags == want && !yield(b[unix.SizeofNlAttr:length]) {
				return
			}
			b = b[min(len(b), aligned(length)):]
		}
	}
}

// Elements yields the elements of a set in a message.
func Elements(message []byte) iter.Seq[[]byte] {
	return Attributes(First(message, unix.NFTA_SET_ELEM_LIST_ELEMENTS), unix.NFTA_LIST_ELEM)
}

// Value returns the value of a key, or of data.
func Value(element []byte, kind uint16) []byte {
	return First(First(element, kind), unix.NFTA_DATA_VALUE)
}

// CutMessage returns the first message, with its header, and the bytes behind it.
func CutMessage(b []byte) (message, rest []byte, ok bool) {
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

// Uint32 reads a number, 0 if there is none.
func Uint32(b []byte) uint32 {
	if len(b) < 4 {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

// Uint64 reads a number, 0 if there is none.
func Uint64(b []byte) uint64 {
	if len(b) < 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

// Text returns a string without the zero that ends it in messages.
func Text(b []byte) []byte {
	if n := len(b); n > 0 && b[n-1] == 0 {
		return b[:n-1]
	}
	return b
}

// String returns the text in the first attribute of a type, "" if there is none.
func String(b []byte, want uint16) string { return string(Text(First(b, want))) }

// Userdata finds data of a type in what programs keep with an object: types, lengths and values. isData reports whether
// all before it has this form. Get of google/nftables' userdata slices data[2:2+data[1]] without a look at the length.
func Userdata(b []byte, kind byte) (value []byte, isData bool) {
	const header = 2
	for len(b) >= header && header+int(b[1]) <= len(b) {
		n := header + int(b[1])
		if b[0] == kind {
			return b[header:n], true
		}
		b = b[n:]
	}
	return nil, len(b) == 0
}

// IsMissing reports whether the answer to a list says that the kernel has no nf_tables (nfnetlink_rcv_msg), or not
// for a family.
func IsMissing(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT)
}
