package iptsim

import (
	"net/netip"

	"github.com/vmapd/vmapd/model"
)

// Packet is a packet on its path.
type Packet struct {
	model.Connection // with the current destination
	SourcePort       uint16
	Mark             uint32
	Invalid          bool // for connection tracking; otherwise the packet is NEW
	Established      bool // … or ESTABLISHED
	Confirmed        bool // NEW, but not the connection's first packet: it meets no rule of the table nat
	ByIPVS           bool // IPVS has sent it to a real server
}

// Node is the part of a node's state that rules depend on.
type Node struct {
	IsLocal func(netip.Addr) bool // whether the address is one of the node's
	Sets    Sets                  // nil if there are none
}

// Sets are the ipsets of a node.
type Sets interface {
	// Has reports whether a packet is in a set.
	Has(set, fields string, p Packet) bool
}
