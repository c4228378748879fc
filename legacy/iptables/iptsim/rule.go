package iptsim

import "net/netip"

// rule is one rule.
type rule struct {
	text    string // without the chain
	matches []match
	target  target
}

// match returns the share of the packets for which a condition holds.
type match func(r *run, s *state) float64

// target is what a rule does.
type target struct {
	does        string         // ACCEPT, DROP, RETURN, DNAT, MARK, MASQUERADE, REJECT; jump and goto
	chain       string         // of jump and goto
	to          netip.AddrPort // of DNAT
	value, mask uint32         // of MARK: it replaces the bits of mask and then exchanges those of value
	with        string         // of REJECT
}
