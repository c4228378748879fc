package firewall

import (
	"bytes"
	"fmt"
	"net/netip"
)

// Hook is a place in the packet's way.
type Hook string

// The hooks.
const (
	Ingress     Hook = "ingress"
	Prerouting  Hook = "prerouting"
	Input       Hook = "input"
	Forward     Hook = "forward"
	Output      Hook = "output"
	Postrouting Hook = "postrouting"
)

// Ruleset is one table of one family. The tables of iptables-legacy are each one, too.
type Ruleset struct {
	By     string // "nftables" or "iptables-legacy"
	Family string // ip, ip6, inet or netdev
	Table  string
	Chains map[string]*Chain
}

// Chain is a list of rules.
type Chain struct {
	Name string
	// Hook is empty unless the chain is a base chain.
	Hook     Hook
	Priority int
	Drops    bool   // the policy is drop
	Device   string // of an ingress hook
	Rules    []Rule
	// Unread are rules that were not read, as there were too many.
	Unread int
}

// Rule is a list of conditions, and what happens to a packet for which all hold.
type Rule struct {
	Number  int // in its chain, from 1 on
	Conds   []Cond
	Verdict Verdict
	Target  string // chain of Jump and Goto
	// Marks: the rule sets the mark of packets.
	Marks bool
	// Untracks: the rule keeps packets from being tracked, if it is before connection tracking.
	Untracks bool
}

// Verdict is what a rule does.
type Verdict uint8

// The verdicts.
const (
	Continue Verdict = iota
	Accept
	Drop // or reject
	Return
	Jump
	Goto
	Unsure // a drop, an accept or a continuation
)

// Kind is the kind of a Field.
type Kind uint8

// The kinds. The first two are offsets in a header.
const (
	Network Kind = iota
	Transport
	InInterface
	OutInterface
	Protocol  // of layer 4, a byte
	NFProto   // NFPROTO_IPV4 or NFPROTO_IPV6, a byte
	EtherType // two bytes
	CtState   // bits in the machine's byte order
	CtStateXT // bits in the machine's byte order, as in the matches of iptables
	CtStatus  // bits
	CtOrigDst // address
	CtOrigDstPort
	Mark
	DestType // type of the destination's route, as of fib
	Other    // anything that is not known of a packet
)

// Field is a part of a packet.
type Field struct {
	Kind        Kind
	Offset, Len int
}

// Cond is a condition: the field, masked, is in one of the ranges. Values are compared byte by byte.
type Cond struct {
	Field
	Mask   []byte // nil: all
	Ranges [][2][]byte
	Not    bool
}

// equals returns the condition that a field has a value.
func equals(f Field, value []byte) Cond {
	return Cond{Field: f, Ranges: [][2][]byte{{value, value}}}
}

// Truth is whether something holds.
type Truth uint8

// The truths.
const (
	No Truth = iota
	Maybe
	Yes
)

func (t Truth) not() Truth { return Yes - t }

// holds tells whether a condition holds for a packet.
func (c Cond) holds(p *Packet) Truth {
	value, known := p.load(c.Field)
	if value == nil {
		return Maybe
	}
	masked := make([]byte, len(value))
	for i, b := range value {
		mask := byte(0xff)
		if i < len(c.Mask) {
			mask = c.Mask[i]
		}
		if mask != 0 && !known[i] {
			return Maybe
		}
		masked[i] = b & mask
	}
	in := No
	for _, r := range c.Ranges {
		n := min(len(masked), len(r[0]), len(r[1]))
		if bytes.Compare(masked[:n], r[0][:n]) >= 0 && bytes.Compare(masked[:n], r[1][:n]) <= 0 {
			in = Yes
		}
	}
	if c.Not {
		in = in.not()
	}
	return in
}

// aboutPort reports whether a condition is about the destination's port.
func (c Cond) aboutPort() bool {
	const dport, end = 2, 4
	return c.Kind == CtOrigDstPort || c.Kind == Transport && c.Offset <= dport && c.Offset+c.Len >= end
}

// Place is where a rule or a policy is.
type Place struct {
	By, Family, Table, Chain string
	Rule                     int // from 1 on; 0 is the policy
}

func (p Place) String() string {
	what := fmt.Sprintf("rule %d", p.Rule)
	if p.Rule == 0 {
		what = "policy drop"
	}
	if p.By == "iptables-legacy" {
		return fmt.Sprintf("iptables-legacy, %s table %s, chain %s, %s", p.Family, p.Table, p.Chain, what)
	}
	return fmt.Sprintf("table %s %s, chain %s, %s", p.Family, p.Table, p.Chain, what)
}

// Packet is a packet at a hook, as far as it is known.
type Packet struct {
	IPv6       bool
	Src, Dst   netip.Addr // the zero value is not known
	Proto      uint8
	SrcPort    uint16 // 0 is not known
	DstPort    uint16 // 0 is not known
	In, Out    string // "" is not known; NoInterface is none
	State      uint32 // connection tracking's bits; 0 is not known
	Translated bool   // the destination was
	Orig       netip.AddrPort
	MarkKnown  bool
	Mark       uint32
	Local      Truth // the destination is an address of the node

	headers [2]*header // of Network and Transport, made when they are needed first
}

// NoInterface is the interface of a packet that has none.
const NoInterface = "-"
