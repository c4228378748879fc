package ipvs

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// Rule is a rule of iptables: all matches must hold for its target. Both print as
// arguments; the simulator runs the values.
type Rule struct {
	Matches []Match
	Target  Target
}

// Match is what a packet must be like.
type Match interface{ text(f model.Family) string }

// Target is what becomes of it.
type Target interface{ target(f model.Family) string }

// The matches.
type (
	// InSet looks the packet up in a set, by its destination address and port or by what
	// else Fields say, as -m set has it.
	InSet struct {
		Set    SetName
		Fields string
		Not    bool
	}
	// StateIs matches what connection tracking says: NEW, INVALID or RELATED,ESTABLISHED.
	StateIs struct{ States string }
	// From matches the source address.
	From struct{ Prefix netip.Prefix }
	// To matches the destination address.
	To struct{ Prefix netip.Prefix }
	// By matches the interface by which a packet came in. Nothing that the node sends has one.
	By struct {
		Name     string
		Wildcard bool // the name begins like this
		Not      bool
	}
	// Marked matches the packet mark.
	Marked struct {
		Value, Mask uint32
		Not         bool
	}
	// FromLocal matches a source address that is the node's.
	FromLocal struct{}
	// ToLocal matches a destination address that is the node's.
	ToLocal struct{ Not bool }
	// ByIPVS matches what IPVS has sent to a real server.
	ByIPVS struct{ Not bool }
	// IsTCP matches TCP.
	IsTCP struct{}
)

// The targets.
type (
	// Jump goes on in another chain, and comes back at its end.
	Jump struct{ Chain string }
	// Accept ends the table's chains.
	Accept struct{}
	// Return ends this chain.
	Return struct{}
	// Drop discards the packet.
	Drop struct{}
	// Reject refuses, by a TCP reset or an ICMP error.
	Reject struct{ TCPReset bool }
	// SetMark sets the bits of Mask in the packet mark to those of Value.
	SetMark struct{ Value, Mask uint32 }
	// MapMark sets the packet mark to that of the set's entry.
	MapMark struct {
		Set    SetName
		Fields string
	}
	// Masquerading replaces the source address by the node's.
	Masquerading struct{ RandomFully bool }
)

func not(n bool) string {
	if n {
		return "! "
	}
	return ""
}

func (m InSet) text(f model.Family) string {
	return fmt.Sprintf("-m set %s--match-set %s %s", not(m.Not), m.Set.In(f), m.Fields)
}

func (m StateIs) text(model.Family) string { return "-m conntrack --ctstate " + m.States }

func (m From) text(model.Family) string { return "-s " + m.Prefix.String() }

func (m To) text(model.Family) string { return "-d " + m.Prefix.String() }

func (m By) text(model.Family) string {
	if m.Wildcard {
		return not(m.Not) + "-i " + m.Name + "+"
	}
	return not(m.Not) + "-i " + m.Name
}

func (m Marked) text(model.Family) string {
	return fmt.Sprintf("-m mark %s--mark %#x/%#x", not(m.Not), m.Value, m.Mask)
}

func (FromLocal) text(model.Family) string { return "-m addrtype --src-type LOCAL" }

func (m ToLocal) text(model.Family) string { return "-m addrtype " + not(m.Not) + "--dst-type LOCAL" }

func (m ByIPVS) text(model.Family) string { return "-m ipvs " + not(m.Not) + "--ipvs" }

func (IsTCP) text(model.Family) string { return "-p tcp" }

func (t Jump) target(model.Family) string { return "-j " + t.Chain }
func (Accept) target(model.Family) string { return "-j ACCEPT" }
func (Return) target(model.Family) string { return "-j RETURN" }
func (Drop) target(model.Family) string   { return "-j DROP" }

func (t Reject) target(f model.Family) string {
	switch {
	case t.TCPReset:
		return "-j REJECT --reject-with tcp-reset"
	case f == model.IPv6:
		return "-j REJECT --reject-with icmp6-port-unreachable"
	}
	return "-j REJECT --reject-with icmp-port-unreachable"
}

func (t SetMark) target(model.Family) string {
	return fmt.Sprintf("-j MARK --set-xmark %#x/%#x", t.Value, t.Mask)
}

func (t MapMark) target(f model.Family) string {
	return fmt.Sprintf("-j SET --map-set %s %s --map-mark", t.Set.In(f), t.Fields)
}

func (t Masquerading) target(model.Family) string {
	if t.RandomFully {
		return "-j MASQUERADE --random-fully"
	}
	return "-j MASQUERADE"
}

// Text is the rule's arguments.
func (r Rule) Text(f model.Family) string {
	var words []string
	for _, m := range r.Matches {
		words = append(words, m.text(f))
	}
	return strings.Join(append(words, r.Target.target(f)), " ")
}

// podMatches return the matches that tell packets from pods: one of them must hold.
func podMatches(p model.PodSources) []Match {
	var list []Match
	if p.Interface == "" {
		for _, prefix := range p.CIDRs {
			list = append(list, From{prefix})
		}
		return list
	}
	return []Match{By{Name: p.Interface, Wildcard: p.Wildcard && len(p.Interface) < model.MaxInterface}}
}
