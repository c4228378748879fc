package conntrack

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
)

// Flow is an entry of the kernel's table, with the fields that rules need.
type Flow struct {
	Protocol     model.Protocol
	Source, Dest netip.AddrPort // as the client sent the first packet
	ReplySource  netip.AddrPort // of packets of the other direction; DNAT changes it

	Zone       bool // in another than the default zone, in either direction
	Translated bool // its destination is (IPS_DST_NAT); IPVS sets no status
	Answered   bool // there was a packet of the other direction

	id    uint32
	reply []byte // the tuple of replies, in the message
}

// Attributes that package nl lacks, from linux/netfilter/nfnetlink_conntrack.h.
const (
	ctaTupleZone        = 3
	ctaFilter           = 25
	ctaFilterOrigFlags  = 1
	ctaFilterReplyFlags = 2
)

// Bits of the status, from linux/netfilter/nf_conntrack_common.h.
const (
	ipsSeenReply = 1 << 1
	ipsDstNAT    = 1 << 5
)

var errShort = errors.New("message about a connection lacks an address")

// parseFlow reads a message of the kernel. It does not allocate: there may be a million flows.
func parseFlow(b []byte) (f Flow, err error) {
	if len(b) < nl.SizeofNfgenmsg {
		return f, errShort
	}
	b = b[nl.SizeofNfgenmsg:]
	original := attribute(b, nl.CTA_TUPLE_ORIG)
	f.id, f.reply = number(b, nl.CTA_ID), attribute(b, nl.CTA_TUPLE_REPLY)
	f.Protocol = model.Protocol(number(attribute(original, nl.CTA_TUPLE_PROTO), nl.CTA_PROTO_NUM))
	f.Source = end(original, nl.CTA_IP_V4_SRC, nl.CTA_IP_V6_SRC, nl.CTA_PROTO_SRC_PORT)
	f.Dest = end(original, nl.CTA_IP_V4_DST, nl.CTA_IP_V6_DST, nl.CTA_PROTO_DST_PORT)
	f.ReplySource = end(f.reply, nl.CTA_IP_V4_SRC, nl.CTA_IP_V6_SRC, nl.CTA_PROTO_SRC_PORT)
	f.Zone = number(b, nl.CTA_ZONE)|number(original, ctaTupleZone)|number(f.reply, ctaTupleZone) != 0
	status := number(b, nl.CTA_STATUS)
	f.Translated, f.Answered = status&ipsDstNAT != 0, status&ipsSeenReply != 0
	if !f.Source.IsValid() || !f.Dest.IsValid() || !f.ReplySource.IsValid() {
		return f, errShort
	}
	return f, nil
}

// end reads the source or the destination of a tuple, of which the kinds of attributes are given.
func end(tuple []byte, v4, v6, port uint16) netip.AddrPort {
	ip := attribute(tuple, nl.CTA_TUPLE_IP)
	a, ok := netip.AddrFromSlice(attribute(ip, v4))
	if !ok {
		a, _ = netip.AddrFromSlice(attribute(ip, v6))
	}
	return netip.AddrPortFrom(a, uint16(number(attribute(tuple, nl.CTA_TUPLE_PROTO), port)))
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

// Filter selects flows. Kernels before Linux 5.8 ignore it, and list all flows of a family. Its zero value selects all.
// Of IPv6 it selects ports alone: the kernel lists what has other addresses (ctnetlink_filter_match_tuple takes
// ipv6_addr_cmp for a comparison that is true if both are the same).
type Filter struct {
	Protocol model.Protocol // 0: any; then nothing else is selected by either
	Dest     netip.AddrPort // of the first packet; with the unspecified address: the port alone; invalid: any
	Endpoint netip.AddrPort // the source of replies; invalid: any
}

// listing returns the request for the flows of a family.
func (q Filter) listing(of model.Family) (netlink.Message, error) {
	ae := netlink.NewAttributeEncoder()
	if q.Protocol != 0 {
		original := q.compare(ae, nl.CTA_TUPLE_ORIG, q.Dest, nl.CTA_IP_V4_DST, nl.CTA_PROTO_DST_PORT)
		reply := q.compare(ae, nl.CTA_TUPLE_REPLY, q.Endpoint, nl.CTA_IP_V4_SRC, nl.CTA_PROTO_SRC_PORT)
		ae.Nested(ctaFilter, func(ae *netlink.AttributeEncoder) error {
			ae.Uint32(ctaFilterOrigFlags, original)
			ae.Uint32(ctaFilterReplyFlags, reply)
			return nil
		})
	}
	return message(msgGet, netlink.Request|netlink.Dump, of, ae)
}

// compare writes a tuple with the protocol and what is known of one end, and returns which parts the kernel compares:
// bits for the attributes of addresses and of ports, from the kernel's net/netfilter/nf_internals.h.
func (q Filter) compare(ae *netlink.AttributeEncoder, kind uint16, end netip.AddrPort, ip, port uint16) (flags uint32) {
	const protocol = 1 << 3
	flags = protocol
	ae.Nested(kind, func(ae *netlink.AttributeEncoder) error {
		if a := end.Addr(); a.Is4() && !a.IsUnspecified() {
			flags |= 1 << (ip - nl.CTA_IP_V4_SRC)
			ae.Nested(nl.CTA_TUPLE_IP, func(ae *netlink.AttributeEncoder) error {
				ae.Bytes(ip, a.AsSlice())
				return nil
			})
		}
		ae.Nested(nl.CTA_TUPLE_PROTO, func(ae *netlink.AttributeEncoder) error {
			ae.Uint8(nl.CTA_PROTO_NUM, uint8(q.Protocol))
			if end.IsValid() {
				flags |= protocol << (port - nl.CTA_PROTO_NUM)
				ae.Bytes(port, binary.BigEndian.AppendUint16(nil, end.Port()))
			}
			return nil
		})
		return nil
	})
	return flags
}

// deletion identifies a flow by the tuple of its replies and by its id, a hash of the entry's address and of the
// original tuple, so that a newer flow is never deleted.
func (f *Flow) deletion() (netlink.Message, error) {
	ae := netlink.NewAttributeEncoder()
	ae.Bytes(netlink.Nested|nl.CTA_TUPLE_REPLY, f.reply)
	ae.Bytes(nl.CTA_ID, binary.BigEndian.AppendUint32(nil, f.id))
	return message(msgDelete, netlink.Request|netlink.Acknowledge, model.FamilyOf(f.Dest.Addr()), ae)
}

func message(
	kind netlink.HeaderType, flags netlink.HeaderFlags, f model.Family, ae *netlink.AttributeEncoder,
) (netlink.Message, error) {
	genmsg := []byte{unix.AF_INET, unix.NFNETLINK_V0, 0, 0} // the last two are a resource id, unused
	if f == model.IPv6 {
		genmsg[0] = unix.AF_INET6
	}
	attrs, err := ae.Encode()
	return netlink.Message{Header: netlink.Header{Type: kind, Flags: flags}, Data: append(genmsg, attrs...)}, err
}
