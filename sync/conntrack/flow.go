package conntrack

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

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

var errShort = errors.New("message about a connection lacks an address")

// parseFlow reads a message of the kernel. It does not allocate: there may be a million
// flows.
func parseFlow(b []byte) (f flow, err error) {
	if len(b) < nl.SizeofNfgenmsg {
		return f, errShort
	}
	b = b[nl.SizeofNfgenmsg:]
	original, reply := attribute(b, nl.CTA_TUPLE_ORIG), attribute(b, nl.CTA_TUPLE_REPLY)
	f.id = number(b, nl.CTA_ID)
	f.protocol = model.Protocol(number(attribute(original, nl.CTA_TUPLE_PROTO), nl.CTA_PROTO_NUM))
	f.source, f.dest = parseTuple(original)
	f.replySource, f.replyDest = parseTuple(reply)
	f.zone = number(b, nl.CTA_ZONE)|number(original, ctaTupleZone)|number(reply, ctaTupleZone) != 0
	status := number(b, nl.CTA_STATUS)
	f.translated, f.answered = status&ipsDstNAT != 0, status&ipsSeenReply != 0
	tcp := attribute(attribute(b, nl.CTA_PROTOINFO), nl.CTA_PROTOINFO_TCP)
	f.state = byte(number(tcp, nl.CTA_PROTOINFO_TCP_STATE))
	if !f.source.IsValid() || !f.dest.IsValid() || !f.replySource.IsValid() || !f.replyDest.IsValid() {
		return f, errShort
	}
	return f, nil
}

func parseTuple(b []byte) (from, to netip.AddrPort) {
	ip, ports := attribute(b, nl.CTA_TUPLE_IP), attribute(b, nl.CTA_TUPLE_PROTO)
	end := func(v4, v6, port uint16) netip.AddrPort {
		a, ok := netip.AddrFromSlice(attribute(ip, v4))
		if !ok {
			a, _ = netip.AddrFromSlice(attribute(ip, v6))
		}
		return netip.AddrPortFrom(a, uint16(number(ports, port)))
	}
	return end(nl.CTA_IP_V4_SRC, nl.CTA_IP_V6_SRC, nl.CTA_PROTO_SRC_PORT),
		end(nl.CTA_IP_V4_DST, nl.CTA_IP_V6_DST, nl.CTA_PROTO_DST_PORT)
}

// number reads an integer in the network's byte order; 0: there is none.
func number(b []byte, kind uint16) (n uint32) {
	for _, part := range attribute(b, kind) {
		n = n<<8 | uint32(part)
	}
	return n
}

// attribute returns what the first netlink attribute of a kind holds (struct nlattr, netlink(7)); nil: there is none.
func attribute(b []byte, want uint16) []byte {
	const kindMask = 0x3fff
	for len(b) >= unix.SizeofNlAttr {
		size := int(binary.NativeEndian.Uint16(b))
		if size < unix.SizeofNlAttr || size > len(b) {
			return nil
		}
		if binary.NativeEndian.Uint16(b[2:])&kindMask == want {
			return b[unix.SizeofNlAttr:size]
		}
		b = b[min(len(b), (size+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1)):]
	}
	return nil
}
