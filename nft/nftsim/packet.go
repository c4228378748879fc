package nftsim

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft"
)

// Outcome is a modeltest.Outcome, with the counters.
type Outcome struct {
	modeltest.Outcome

	// Counted holds "SET COMMENT" of the elements with counters that the packet increases, in the order in which it meets
	// them.
	Counted []string
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

// branch is one result of random choices.
type branch struct {
	share  float64
	ending ending
	dest   netip.AddrPort // translated only
}

// state is a packet of a connection inside the node.
type state struct {
	model.Connection
	orig netip.AddrPort // the destination before any DNAT
}

// expr appends one component of a key, as the kernel has it in its registers. A slot does not
// depend on the packet.
func (s *state) expr(b []byte, e nft.Expr) ([]byte, error) {
	switch e.Field {
	case nft.SourceAddr:
		return nft.AppendAddr(b, s.Source), nil
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
		return nft.AppendPort(b, cmp.Or(s.SourcePort, modeltest.ClientPort)), nil
	case nft.Constant:
		return nft.AppendSlot(b, e.Value), nil
	case nft.RandomSlot, nft.HashSlot, nft.FlowSlot:
	}
	return nil, fmt.Errorf("unknown field %d", e.Field)
}
