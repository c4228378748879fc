package iptsim

import (
	"net/netip"

	"github.com/vmapd/vmapd/model"
)

// Rule is one rule.
type Rule struct {
	Text    string // without the chain
	Matches []Match
	Target  Target
}

// Match is a condition of a rule.
type Match interface {
	// holds returns the share of the packets for which the condition holds.
	holds(r *run, s *state) float64
}

// Target is the action of a rule.
type Target interface{ isTarget() }

// The matches.
type (
	// Address is -s or -d. Its mask need not be contiguous.
	Address struct {
		Dest, Not  bool
		Addr, Mask netip.Addr
	}
	// Interface is -i. Packets of this node itself have none.
	Interface struct {
		Name          string
		Wildcard, Not bool
	}
	// Protocol is -p.
	Protocol struct{ Protocol model.Protocol }
	// Ports is --dport, of the match with the protocol's name.
	Ports struct{ First, Last uint16 }
	// Comment is --comment.
	Comment struct{ Text string }
	// Mark is --mark.
	Mark struct {
		Value, Mask uint32
		Not         bool
	}
	// State is --ctstate.
	State struct{ Any []string }
	// Confirmed is --ctstatus CONFIRMED: an earlier packet of the connection passed.
	Confirmed struct{}
	// AddressType is --src-type LOCAL or --dst-type LOCAL.
	AddressType struct{ Dest, Not bool }
	// InSet is --match-set: an ipset has the packet's values of these fields.
	InSet struct {
		Set, Fields string
		Not         bool
	}
	// ByIPVS is --ipvs: IPVS has sent the packet to a real server.
	ByIPVS struct{ Not bool }
	// Statistic is --mode random.
	Statistic struct{ Share float64 }
	// Recent is one of --set, --rcheck and --update.
	Recent struct {
		Name string
		Set  bool
	}
)

// The targets.
type (
	// Verdict is ACCEPT, DROP or RETURN.
	Verdict string
	// Jump is -j or -g to a chain.
	Jump struct {
		Chain string
		Goto  bool
	}
	// DNAT replaces the destination.
	DNAT struct{ To netip.AddrPort }
	// Masquerade replaces the source by the node's address.
	Masquerade struct{ RandomFully bool }
	// SetMark replaces the bits of Mask and then exchanges those of Value.
	SetMark struct{ Value, Mask uint32 }
	// Reject answers with an error or a reset.
	Reject struct{ With string }
)

func (Verdict) isTarget()    {}
func (Jump) isTarget()       {}
func (DNAT) isTarget()       {}
func (Masquerade) isTarget() {}
func (SetMark) isTarget()    {}
func (Reject) isTarget()     {}
