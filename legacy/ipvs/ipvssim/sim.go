package ipvssim

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
)

// Origin is where a packet comes from. It decides which hooks it passes.
type Origin uint8

// The origins.
const (
	Network Origin = iota // a pod, or another machine
	Node                  // a process on this node, in the host's network
)

func (o Origin) String() string { return [...]string{"network", "node"}[o] }

// Packet is the first packet of a connection.
type Packet struct {
	From         Origin
	Interface    string // by which it comes in; not for Node
	Source, Dest netip.AddrPort
	Protocol     model.Protocol
	// Mark is what others have marked it with.
	Mark uint32
	// Invalid: connection tracking can make nothing of it.
	Invalid bool
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

	// To has, for Accept, all destinations that a scheduler may choose. What no virtual server
	// concerns has one: the packet's own.
	To map[netip.AddrPort]Arrival

	// Node: what listens on the node gets it, at the packet's own destination.
	Node bool
	// Server is the virtual server that chose; the zero value if none did.
	Server ipvs.Key
	// Trace has the rules that matched, in the order in which they were met.
	Trace []string
}

// Arrival is how a packet arrives at one of its destinations.
type Arrival struct {
	Share      float64 // of all connections
	Masquerade bool    // with the node's address as its source
}

// Simulator runs packets through one Content.
type Simulator struct {
	content *ipvs.Content
	chains  map[string]map[string][]ipvs.Rule // by table and name
	jumps   map[string][]ipvs.Rule            // by table and built-in chain
	node    map[netip.Addr]bool
}

// New checks a Content. The addresses are those of the node's interfaces other than the
// dummy device.
func New(c *ipvs.Content, nodeAddrs ...netip.Addr) (*Simulator, error) {
	s := &Simulator{
		content: c, node: map[netip.Addr]bool{},
		chains: map[string]map[string][]ipvs.Rule{}, jumps: map[string][]ipvs.Rule{},
	}
	for _, a := range nodeAddrs {
		s.node[a] = true
	}
	if c.Companion == nil {
		return s, nil
	}
	for _, t := range c.Companion.Tables {
		s.chains[t.Name] = map[string][]ipvs.Rule{}
		for _, chain := range t.Chains {
			if _, ok := s.chains[t.Name][chain.Name]; ok {
				return nil, fmt.Errorf("table %s: chain %s is there twice", t.Name, chain.Name)
			}
			s.chains[t.Name][chain.Name] = chain.Rules
		}
	}
	for _, j := range c.Companion.Jumps {
		hook := j.Table + " " + j.Chain
		s.jumps[hook] = slices.Insert(s.jumps[hook], 0, j.Rule) // before those that are there
	}
	return s, s.check()
}

// check sees whether the kernel would take the rules.
func (s *Simulator) check() error {
	for table, chains := range s.chains {
		for _, name := range slices.Sorted(maps.Keys(chains)) {
			for i, r := range chains[name] {
				if err := s.checkRule(table, r); err != nil {
					return fmt.Errorf("table %s: chain %s: rule %d: %w", table, name, i+1, err)
				}
			}
		}
	}
	return nil
}

func (s *Simulator) checkRule(table string, r ipvs.Rule) error {
	for _, m := range r.Matches {
		if m, ok := m.(ipvs.InSet); ok && s.content.Sets[m.Set] == nil {
			return fmt.Errorf("no set %s", m.Set)
		}
	}
	switch t := r.Target.(type) {
	case ipvs.Jump:
		if _, ok := s.chains[table][t.Chain]; !ok {
			return fmt.Errorf("no chain %s", t.Chain)
		}
	case ipvs.Drop:
		if table == "nat" {
			return fmt.Errorf("nothing is dropped in nat")
		}
	case ipvs.Reject:
		if table != "filter" {
			return fmt.Errorf("nothing is refused but in filter")
		}
	case ipvs.MapMark:
		if table != "mangle" || !t.Set.HasMarks() || s.content.Sets[t.Set] == nil {
			return fmt.Errorf("set %s gives no marks here", t.Set)
		}
	case ipvs.Masquerading:
		if table != "nat" {
			return fmt.Errorf("no source is replaced but in nat")
		}
	}
	return nil
}

// isLocal reports whether an address is the node's.
func (s *Simulator) isLocal(a netip.Addr) bool { return s.node[a] || s.content.Addrs[a] }
