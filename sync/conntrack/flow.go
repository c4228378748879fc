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

// Flow is an entry of the kernel's table, with the fields that rules need. Masquerading changes the destination of
// replies, and DNAT their source.
type Flow struct {
	Protocol               model.Protocol
	Source, Dest           netip.AddrPort // as the client sent the first packet
	ReplySource, ReplyDest netip.AddrPort // of packets of the other direction

	Zone       bool // in another than the default zone, in either direction
	Translated bool // its destination is (IPS_DST_NAT); IPVS sets no status
	Answered   bool // there was a packet of the other direction
	State      byte // of a TCP connection: enum tcp_conntrack of linux/netfilter/nf_conntrack_tcp.h

	id uint32
}

// Attributes that package nl lacks, from linux/netfilter/nfnetlink_conntrack.h.
const (
	ctaTupleZone        = 3
	ctaFilter           = 25
	ctaFilterOrigFlags  = 1
	ctaFilterReplyFlags = 2
)

// Bits of a filter's flags, from the kernel's net/netfilter/nf_internals.h.
const (
	filterSource = 1 << iota
	filterDest
	_
	filterProtocol
	filterSourcePort
	filterDestPort
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
	original, reply := attribute(b, nl.CTA_TUPLE_ORIG), attribute(b, nl.CTA_TUPLE_REPLY)
	f.id = number(b, nl.CTA_ID)
	f.Protocol = model.Protocol(number(attribute(original, nl.CTA_TUPLE_PROTO), nl.CTA_PROTO_NUM))
	f.Source, f.Dest = parseTuple(original)
	f.ReplySource, f.ReplyDest = parseTuple(reply)
	f.Zone = number(b, nl.CTA_ZONE)|number(original, ctaTupleZone)|number(reply, ctaTupleZone) != 0
	status := number(b, nl.CTA_STATUS)
	f.Translated, f.Answered = status&ipsDstNAT != 0, status&ipsSeenReply != 0
	tcp := attribute(attribute(b, nl.CTA_PROTOINFO), nl.CTA_PROTOINFO_TCP)
	f.State = byte(number(tcp, nl.CTA_PROTOINFO_TCP_STATE))
	if !f.Source.IsValid() || !f.Dest.IsValid() || !f.ReplySource.IsValid() || !f.ReplyDest.IsValid() {
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

// Filter selects flows. Kernels before Linux 5.8 ignore it, and list all flows of a family. Its zero value selects all.
// Of IPv6 it selects ports alone: the kernel lists what has other addresses (ctnetlink_filter_match_tuple takes
// ipv6_addr_cmp for a comparison that is true if both are the same).
type Filter struct {
	Protocol model.Protocol // 0: any; then nothing else is selected by either
	Dest     netip.AddrPort // of the first packet; with the unspecified address: the port alone; invalid: any
	Endpoint netip.AddrPort // the source of replies; invalid: any
}

// selects reports whether a kernel that filters lists a flow.
func (q Filter) selects(f *Flow) bool {
	return q.Protocol == 0 || q.Protocol == f.Protocol &&
		(!q.Dest.IsValid() || q.Dest.Port() == f.Dest.Port()) &&
		(!isComparable(q.Dest) || q.Dest.Addr() == f.Dest.Addr()) &&
		(!q.Endpoint.IsValid() || q.Endpoint.Port() == f.ReplySource.Port()) &&
		(!isComparable(q.Endpoint) || q.Endpoint.Addr() == f.ReplySource.Addr())
}

// isComparable reports whether the kernel can compare an address.
func isComparable(a netip.AddrPort) bool { return a.Addr().Is4() && !a.Addr().IsUnspecified() }

// listing returns the request for the flows of a family.
func (q Filter) listing(of model.Family) (netlink.Message, error) {
	ae := netlink.NewAttributeEncoder()
	if q.Protocol != 0 {
		original, reply := uint32(filterProtocol), uint32(0)
		if q.Dest.IsValid() {
			original |= filterDestPort
		}
		if isComparable(q.Dest) {
			original |= filterDest
		}
		encodeTuple(ae, nl.CTA_TUPLE_ORIG, q.Protocol, netip.AddrPort{}, q.Dest)
		if q.Endpoint.IsValid() {
			reply = filterProtocol | filterSourcePort
			encodeTuple(ae, nl.CTA_TUPLE_REPLY, q.Protocol, q.Endpoint, netip.AddrPort{})
		}
		if isComparable(q.Endpoint) {
			reply |= filterSource
		}
		ae.Nested(ctaFilter, func(ae *netlink.AttributeEncoder) error {
			ae.Uint32(ctaFilterOrigFlags, original)
			ae.Uint32(ctaFilterReplyFlags, reply)
			return nil
		})
	}
	return message(msgGet, netlink.Request|netlink.Dump, of, ae)
}

// deletion identifies a flow by the tuple of its replies and by its id, a hash of the entry's address and of the
// original tuple, so that a newer flow is never deleted.
func (f *Flow) deletion() (netlink.Message, error) {
	ae := netlink.NewAttributeEncoder()
	encodeTuple(ae, nl.CTA_TUPLE_REPLY, f.Protocol, f.ReplySource, f.ReplyDest)
	ae.Bytes(nl.CTA_ID, binary.BigEndian.AppendUint32(nil, f.id))
	return message(msgDelete, netlink.Request|netlink.Acknowledge, model.FamilyOf(f.Dest.Addr()), ae)
}

// encodeTuple writes what is known of a tuple.
func encodeTuple(ae *netlink.AttributeEncoder, kind uint16, p model.Protocol, from, to netip.AddrPort) {
	address := func(ae *netlink.AttributeEncoder, v4, v6 uint16, a netip.Addr) {
		switch {
		case a.Is4():
			ae.Bytes(v4, a.AsSlice())
		case a.Is6():
			ae.Bytes(v6, a.AsSlice())
		}
	}
	ae.Nested(kind, func(ae *netlink.AttributeEncoder) error {
		ae.Nested(nl.CTA_TUPLE_IP, func(ae *netlink.AttributeEncoder) error {
			address(ae, nl.CTA_IP_V4_SRC, nl.CTA_IP_V6_SRC, from.Addr())
			address(ae, nl.CTA_IP_V4_DST, nl.CTA_IP_V6_DST, to.Addr())
			return nil
		})
		ae.Nested(nl.CTA_TUPLE_PROTO, func(ae *netlink.AttributeEncoder) error {
			ae.Uint8(nl.CTA_PROTO_NUM, uint8(p))
			ae.Bytes(nl.CTA_PROTO_SRC_PORT, binary.BigEndian.AppendUint16(nil, from.Port()))
			ae.Bytes(nl.CTA_PROTO_DST_PORT, binary.BigEndian.AppendUint16(nil, to.Port()))
			return nil
		})
		return nil
	})
}

func message(
	kind netlink.HeaderType, flags netlink.HeaderFlags, f model.Family, ae *netlink.AttributeEncoder,
) (netlink.Message, error) {
	attrs, err := ae.Encode()
	if err != nil {
		return netlink.Message{}, err
	}
	genmsg := [nl.SizeofNfgenmsg]byte{unix.AF_INET, unix.NFNETLINK_V0} // then a resource id, unused
	if f == model.IPv6 {
		genmsg[0] = unix.AF_INET6
	}
	return netlink.Message{
		Header: netlink.Header{Type: kind, Flags: flags},
		Data:   append(genmsg[:], attrs...),
	}, nil
}
