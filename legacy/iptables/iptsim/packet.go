package iptsim

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vmapd/vmapd/model"
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

// Fate is what becomes of a packet.
type Fate uint8

// The fates.
const (
	Accepted Fate = iota // it goes on to Outcome.To
	Dropped
	Rejected
)

func (f Fate) String() string { return [...]string{"accepted", "dropped", "rejected"}[f] }

// Outcome is what becomes of a packet.
type Outcome struct {
	Fate     Fate
	TCPReset bool // Rejected only: by a reset rather than by an ICMP error

	// To has, if Accepted, all destinations that random choices lead to. What no rule
	// concerns has one: the packet's own.
	To map[netip.AddrPort]Arrival

	// RulesMet is how many rules are met in the worst case, and on average.
	RulesMet     int
	RulesMetMean float64

	// Trace has the rules that matched, in the order in which they were met first.
	Trace []string
}

// Arrival is how a packet arrives at one of its destinations.
type Arrival struct {
	Share      float64 // of all connections
	Masquerade bool    // with the node's address as its source
	Mark       uint32

	// Remembered are the xt_recent lists that note the packet's source, sorted.
	Remembered []string
}

// outcome joins what became of all shares.
func outcome(all []state) (Outcome, error) {
	o := Outcome{To: map[netip.AddrPort]Arrival{}}
	total := 0.0
	for i, s := range all {
		total += s.share
		o.RulesMet = max(o.RulesMet, s.met)
		o.RulesMetMean += s.share * float64(s.met)
		if s.end != all[0].end || s.reset != all[0].reset {
			return o, fmt.Errorf("chance decides between fates: %+v and %+v", all[0], all[i])
		}
		if s.end != accepted {
			continue
		}
		slices.Sort(s.recorded)
		now := Arrival{s.share, s.masq, s.mark, s.recorded}
		if before, ok := o.To[s.dest]; ok {
			if before.Masquerade != now.Masquerade || before.Mark != now.Mark || !slices.Equal(before.Remembered, now.Remembered) {
				return o, fmt.Errorf("chance decides how a packet arrives at %v: %+v or %+v", s.dest, before, now)
			}
			now.Share += before.Share
		}
		o.To[s.dest] = now
	}
	if total < 1-1e-6 || total > 1+1e-6 {
		return o, fmt.Errorf("the shares of the packets sum up to %v", total)
	}
	switch all[0].end {
	case dropped:
		o.Fate, o.To = Dropped, nil
	case rejected:
		o.Fate, o.TCPReset, o.To = Rejected, all[0].reset, nil
	case accepted, going:
	}
	return o, nil
}
