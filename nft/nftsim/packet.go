package nftsim

import (
	"fmt"
	"net/netip"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
)

// Origin is where a packet comes from. It decides which hooks it passes.
type Origin uint8

// The origins.
const (
	Pod     Origin = iota // a pod on this node
	Node                  // a process on this node, in the host's network
	Outside               // any other machine
)

func (o Origin) String() string { return [...]string{"pod", "node", "outside"}[o] }

// Packet is the first packet of a connection.
type Packet struct {
	From         Origin
	Interface    string // by which it comes in; not for Node
	Source, Dest netip.AddrPort
	Protocol     model.Protocol
}

func (p Packet) String() string {
	return fmt.Sprintf("%v %v to %v/%v", p.From, p.Source, p.Dest, p.Protocol)
}

// Verdict is what becomes of a packet.
type Verdict uint8

// The verdicts.
const (
	Accept Verdict = iota // it goes on to Outcome.To
	Drop
	Reject
)

func (v Verdict) String() string { return [...]string{"accept", "drop", "reject"}[v] }

// Outcome is what becomes of a packet.
type Outcome struct {
	Verdict  Verdict
	TCPReset bool // Reject only: by a reset rather than by an ICMP error

	// To has, for Accept, all destinations that random choices lead to. What no rule
	// concerns has one: the packet's own.
	To map[netip.AddrPort]Arrival

	// Counted are the comments of the elements that count the packet, in the order in which
	// they were met.
	Counted []string

	// Trace has the rules that matched, in the order in which they were met first.
	Trace []string
}

// Arrival is how a packet arrives at one of its destinations.
type Arrival struct {
	Share      float64 // of all connections
	Masquerade bool    // with the node's address as its source

	// Remembered are the maps that note this destination for the packet's source, sorted.
	Remembered []string
}

// ending is how a packet left a chain.
type ending uint8

const (
	dropped ending = iota
	rejected
	resetted
	translated // DNAT: to a destination
	masqueraded
)

// branch is one of the ways that a packet went, where choices are random.
type branch struct {
	share  float64
	ending ending
	dest   netip.AddrPort // translated only
}

// state is a packet inside the node.
type state struct {
	Packet
	orig netip.AddrPort // the destination before any DNAT
}

// expr returns what one component of a key is, as the kernel has it in its registers.
// Slots are not the packet's business.
func (s *state) expr(b []byte, e nft.Expr) ([]byte, error) {
	switch e.Field {
	case nft.SourceAddr:
		return nft.AppendAddr(b, s.Source.Addr()), nil
	case nft.DestAddr:
		return nft.AppendAddr(b, s.Dest.Addr()), nil
	case nft.Protocol:
		return nft.AppendProto(b, s.Protocol), nil
	case nft.DestPort:
		return nft.AppendPort(b, s.Dest.Port()), nil
	case nft.OrigDestAddr:
		return nft.AppendAddr(b, s.orig.Addr()), nil
	case nft.OrigDestPort:
		return nft.AppendPort(b, s.orig.Port()), nil
	case nft.SourcePort:
		return nft.AppendPort(b, s.Source.Port()), nil
	case nft.RandomSlot, nft.NextSlot, nft.HashSlot:
	}
	return nil, fmt.Errorf("unknown field %d", e.Field)
}
