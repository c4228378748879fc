package tracer

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/internal/nfnl"
	"github.com/vmapd/vmapd/nft/others"
)

// Event is a message of the kernel's about a traced packet: one for each rule that matched, and
// one for the end of each base chain.
type Event struct {
	ID     uint32 // of the packet, the same at all hooks unless the packet passes a device of this node
	Kind   Kind
	Place  others.Place
	Rule   uint64 // its handle; 0 with Policy
	Code   Code
	Target string // the chain of a Jump or Goto

	In, Out uint32 // indices of interfaces, 0 if there is none
	Mark    uint32 // of the packet

	// Packet is the packet as it was when the message was made. Only the first message of a base chain has it.
	Packet *Packet
}

// Packet has the headers that identify a connection.
type Packet struct {
	Protocol     model.Protocol
	Source, Dest netip.AddrPort
	Flags        uint8 // of TCP: FIN 1, SYN 2, RST 4, ACK 16
	Type, Code   uint8 // of ICMP
}

// Flags of TCP.
const (
	FlagSYN = 1 << 1
	FlagRST = 1 << 2
	FlagACK = 1 << 4
)

// IsICMP reports whether the packet is one of ICMP or ICMPv6.
func (p *Packet) IsICMP() bool {
	return p.Protocol == unix.IPPROTO_ICMP || p.Protocol == unix.IPPROTO_ICMPV6
}

// Kind is the occasion of an event.
type Kind uint32

// The kinds (enum nft_trace_types).
const (
	Policy Kind = iota + 1 // the base chain ended, and its policy applied
	Return                 // the chain ended, and the one that jumped here goes on
	Rule                   // a rule matched
)

// Code is a verdict.
type Code int32

// The verdicts (linux/netfilter.h and enum nft_verdicts).
const (
	Drop     Code = 0
	Accept   Code = 1
	Stolen   Code = 2
	Queue    Code = 3
	Continue Code = -1
	Break    Code = -2
	Jump     Code = -3
	Goto     Code = -4
	Returned Code = -5
)

var errShort = errors.New("the kernel's message about a traced packet is too short")

// decode reads a message behind its netlink header.
func decode(b []byte) (Event, error) {
	if len(b) < nfnl.HeaderSize {
		return Event{}, errShort
	}
	attrs := b[nfnl.HeaderSize:]
	if _, err := netlink.UnmarshalAttributes(attrs); err != nil {
		return Event{}, errShort
	}
	number := func(kind uint16) uint32 { return nfnl.Uint32(nfnl.First(attrs, kind)) }
	e := Event{
		ID: number(unix.NFTA_TRACE_ID), Kind: Kind(number(unix.NFTA_TRACE_TYPE)),
		Place: others.Place{
			Family: others.FamilyName(b[0]), Table: nfnl.String(attrs, unix.NFTA_TRACE_TABLE),
			Chain: nfnl.String(attrs, unix.NFTA_TRACE_CHAIN),
		},
		Rule: nfnl.Uint64(nfnl.First(attrs, unix.NFTA_TRACE_RULE_HANDLE)),
		Code: Code(int32(number(unix.NFTA_TRACE_POLICY))),
		In:   number(unix.NFTA_TRACE_IIF), Out: number(unix.NFTA_TRACE_OIF), Mark: number(unix.NFTA_TRACE_MARK),
		Packet: decodePacket(
			nfnl.First(attrs, unix.NFTA_TRACE_NETWORK_HEADER), nfnl.First(attrs, unix.NFTA_TRACE_TRANSPORT_HEADER),
		),
	}
	if verdict := nfnl.First(attrs, unix.NFTA_TRACE_VERDICT); verdict != nil {
		e.Code = Code(int32(nfnl.Uint32(nfnl.First(verdict, unix.NFTA_VERDICT_CODE))))
		e.Target = nfnl.String(verdict, unix.NFTA_VERDICT_CHAIN)
	}
	return e, nil
}

// decodePacket reads headers, or returns nil if they are not those of a packet of IPv4 or IPv6.
func decodePacket(network, transport []byte) *Packet {
	const size4, size6, ports, tcpFlags = 20, 40, 4, 13
	var p Packet
	var from, to netip.Addr
	switch {
	case len(network) >= size4 && network[0]>>4 == 4:
		p.Protocol = model.Protocol(network[9])
		from, to = netip.AddrFrom4([4]byte(network[12:])), netip.AddrFrom4([4]byte(network[16:]))
	case len(network) >= size6 && network[0]>>4 == 6:
		// Behind extension headers, the protocol is not known. A first packet rarely has them.
		p.Protocol = model.Protocol(network[6])
		from, to = netip.AddrFrom16([16]byte(network[8:])), netip.AddrFrom16([16]byte(network[24:]))
	default:
		return nil
	}
	var fromPort, toPort uint16
	switch {
	case len(transport) < ports:
	case p.IsICMP():
		p.Type, p.Code = transport[0], transport[1]
	default:
		fromPort, toPort = binary.BigEndian.Uint16(transport), binary.BigEndian.Uint16(transport[2:])
	}
	if p.Protocol == model.TCP && len(transport) > tcpFlags {
		p.Flags = transport[tcpFlags]
	}
	p.Source, p.Dest = netip.AddrPortFrom(from, fromPort), netip.AddrPortFrom(to, toPort)
	return &p
}
