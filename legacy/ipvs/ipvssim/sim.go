package ipvssim

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// Packet is a packet that the node receives or sends.
type Packet struct {
	model.Connection
	SourcePort uint16
	Mark       uint32 // set by rules of others
	Invalid    bool   // for connection tracking
}

// Outcome is a modeltest.Outcome, and how it came about.
type Outcome struct {
	modeltest.Outcome

	// Node: a socket on the node receives the packet, at the packet's own destination.
	Node bool
	// Server is the virtual server that chose; the zero value if none did.
	Server ipvs.Key
}

// Simulator runs packets through one Content.
type Simulator struct {
	content   *ipvs.Content
	chains    map[string]map[string][]ipvs.Rule // by table and name
	jumps     map[string][]ipvs.Rule            // by table and built-in chain
	nodeAddrs map[netip.Addr]bool
}

// New checks a Content. The addresses are those of the node's interfaces other than the
// dummy device.
func New(c *ipvs.Content, nodeAddrs ...netip.Addr) (*Simulator, error) {
	s := &Simulator{
		content: c, nodeAddrs: map[netip.Addr]bool{},
		chains: map[string]map[string][]ipvs.Rule{}, jumps: map[string][]ipvs.Rule{},
	}
	for _, a := range nodeAddrs {
		s.nodeAddrs[a] = true
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
func (s *Simulator) isLocal(a netip.Addr) bool { return s.nodeAddrs[a] || s.content.Addrs[a] }
