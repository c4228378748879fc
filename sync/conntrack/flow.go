package conntrack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"

	"github.com/vmapd/vmapd/model"
)

// flow is an entry of the kernel's table, with the fields that rules need.
type flow struct {
	id         uint32
	protocol   model.Protocol
	zone       bool // in another than the default zone, in either direction
	translated bool // its destination is (IPS_DST_NAT)
	answered   bool // there was a reply (IPS_SEEN_REPLY)
	state      byte // of a TCP connection, see tcpStates

	// The original and the reply direction. Masquerading changes the destination of replies,
	// and DNAT their source.
	source, dest, replySource, replyDest netip.AddrPort
}

// Attributes that package nl lacks, from linux/netfilter/nfnetlink_conntrack.h.
const (
	ctaTupleZone       = 3
	ctaFilter          = 25
	ctaFilterOrigFlags = 1
)

// filterProtocol is a bit of ctaFilterOrigFlags, from the kernel's net/netfilter/nf_internals.h.
const filterProtocol = 1 << 3

// Bits of the status, from linux/netfilter/nf_conntrack_common.h.
const (
	ipsSeenReply = 1 << 1
	ipsDstNAT    = 1 << 5
)

var (
	errShort = errors.New("message ends in the middle of an attribute")
	errSize  = errors.New("attribute has the wrong size")
)

// parseFlow reads a message of the kernel. It does not allocate: there may be a million
// flows.
func parseFlow(b []byte) (flow, error) {
	var f flow
	if len(b) < nl.SizeofNfgenmsg {
		return f, errShort
	}
	err := attributes(b[nl.SizeofNfgenmsg:], func(kind uint16, data []byte) (err error) {
		var n uint32
		switch kind {
		case nl.CTA_TUPLE_ORIG:
			f.source, f.dest, err = f.parseTuple(data)
		case nl.CTA_TUPLE_REPLY:
			f.replySource, f.replyDest, err = f.parseTuple(data)
		case nl.CTA_STATUS:
			n, err = number(data, 4)
			f.translated, f.answered = n&ipsDstNAT != 0, n&ipsSeenReply != 0
		case nl.CTA_PROTOINFO:
			err = f.parseState(data)
		case nl.CTA_ID:
			f.id, err = number(data, 4)
		case nl.CTA_ZONE:
			n, err = number(data, 2)
			f.zone = f.zone || n != 0
		}
		return err
	})
	return f, err
}

func (f *flow) parseTuple(b []byte) (from, to netip.AddrPort, err error) {
	var src, dst netip.Addr
	var srcPort, dstPort uint32
	err = attributes(b, func(kind uint16, data []byte) error {
		switch kind {
		case nl.CTA_TUPLE_IP:
			return attributes(data, func(kind uint16, data []byte) error {
				a, ok := netip.AddrFromSlice(data)
				switch {
				case !ok:
					return errSize
				case kind == nl.CTA_IP_V4_SRC || kind == nl.CTA_IP_V6_SRC:
					src = a
				case kind == nl.CTA_IP_V4_DST || kind == nl.CTA_IP_V6_DST:
					dst = a
				}
				return nil
			})
		case nl.CTA_TUPLE_PROTO:
			return attributes(data, func(kind uint16, data []byte) (err error) {
				var n uint32
				switch kind {
				case nl.CTA_PROTO_NUM:
					n, err = number(data, 1)
					f.protocol = model.Protocol(n)
				case nl.CTA_PROTO_SRC_PORT:
					srcPort, err = number(data, 2)
				case nl.CTA_PROTO_DST_PORT:
					dstPort, err = number(data, 2)
				}
				return err
			})
		case ctaTupleZone:
			n, err := number(data, 2)
			f.zone = f.zone || n != 0
			return err
		}
		return nil
	})
	return netip.AddrPortFrom(src, uint16(srcPort)), netip.AddrPortFrom(dst, uint16(dstPort)), err
}

// parseState reads the state of a TCP connection. Other protocols have other attributes here.
func (f *flow) parseState(b []byte) error {
	return attributes(b, func(kind uint16, data []byte) error {
		if kind != nl.CTA_PROTOINFO_TCP {
			return nil
		}
		return attributes(data, func(kind uint16, data []byte) error {
			if kind == nl.CTA_PROTOINFO_TCP_STATE {
				n, err := number(data, 1)
				f.state = byte(n)
				return err
			}
			return nil
		})
	})
}

// number reads an integer in the network's byte order.
func number(data []byte, size int) (uint32, error) {
	switch {
	case len(data) != size:
		return 0, errSize
	case size == 1:
		return uint32(data[0]), nil
	case size == 2:
		return uint32(binary.BigEndian.Uint16(data)), nil
	}
	return binary.BigEndian.Uint32(data), nil
}

// attributes calls f for each netlink attribute (struct nlattr, netlink(7)).
func attributes(b []byte, f func(kind uint16, data []byte) error) error {
	const header, align, kindMask = 4, 4, 0x3fff
	for len(b) > 0 {
		if len(b) < header {
			return errShort
		}
		size := int(binary.NativeEndian.Uint16(b))
		if size < header || size > len(b) {
			return errShort
		}
		kind := binary.NativeEndian.Uint16(b[2:]) & kindMask
		if err := f(kind, b[header:size]); err != nil {
			return fmt.Errorf("attribute %d: %w", kind, err)
		}
		b = b[min(len(b), (size+align-1)/align*align):]
	}
	return nil
}
