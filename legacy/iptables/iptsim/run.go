package iptsim

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// Simulator runs packets through tables.
type Simulator struct {
	*Tables
	node   Node
	recent map[string]map[netip.Addr]bool
}

// New returns a simulator for a node with these addresses, and without ipsets.
func New(t *Tables, nodeAddrs ...netip.Addr) *Simulator {
	return NewOn(Node{IsLocal: func(a netip.Addr) bool { return slices.Contains(nodeAddrs, a) }}, t)
}

// NewOn returns a simulator for a node.
func NewOn(n Node, t *Tables) *Simulator {
	return &Simulator{Tables: t.Clone(), node: n, recent: map[string]map[netip.Addr]bool{}}
}

// Remember puts an address into an xt_recent list.
func (s *Simulator) Remember(list string, a netip.Addr) {
	if s.recent[list] == nil {
		s.recent[list] = map[netip.Addr]bool{}
	}
	s.recent[list][a] = true
}

// run is one packet's path.
type run struct {
	*Simulator
	asked netip.AddrPort // the original destination
	trace []string
	seen  map[string]bool
}

// state is a share of the packets on its path.
type state struct {
	Packet
	share    float64
	dnat     bool
	masq     bool
	recorded []string
	met      int

	at    frame
	end   ending
	reset bool
}

// frame is a place in a chain.
type frame struct {
	chain *chain
	next  int
	up    *frame // to return to; nil in a built-in chain
}

type ending uint8

const (
	going ending = iota
	accepted
	dropped
	rejected
)

// Run runs the first packet of a connection through the tables nat and filter.
func (s *Simulator) Run(c model.Connection) (Outcome, error) {
	r := &run{Simulator: s, asked: c.Dest, seen: map[string]bool{}}
	o, err := r.run(Packet{Connection: c, SourcePort: modeltest.ClientPort})
	o.Trace = r.trace
	if err != nil {
		err = fmt.Errorf("%+v: %w", c, err)
	}
	return o, err
}

// Hook runs a packet through a built-in chain of one table, for simulators of the steps
// between the hooks. It returns the changed packet.
func (s *Simulator) Hook(table, chain string, p Packet) (Packet, Outcome, error) {
	r := &run{Simulator: s, asked: p.Dest, seen: map[string]bool{}}
	states, err := r.pass(table, chain, []state{r.start(p)})
	if err != nil {
		return p, Outcome{}, err
	}
	o, err := outcome(states)
	o.Trace = r.trace
	return states[0].Packet, o, err
}

func (r *run) start(p Packet) state {
	if p.Node {
		p.Interface = ""
	}
	return state{Packet: p, share: 1}
}

func (r *run) run(p Packet) (Outcome, error) {
	if f := model.FamilyOf(p.Dest.Addr()); f != r.family || model.FamilyOf(p.Source) != f {
		return Outcome{}, fmt.Errorf("the tables are for %v alone", r.family)
	}
	first := "PREROUTING"
	if p.Node {
		first = "OUTPUT"
	}
	states, err := r.pass("nat", first, []state{r.start(p)})
	if err != nil {
		return Outcome{}, err
	}
	var all []state
	for _, s := range states {
		list, err := r.onward([]state{s})
		if err != nil {
			return Outcome{}, err
		}
		all = append(all, list...)
	}
	return outcome(all)
}

// onward runs packets with their final destination through the hooks after routing.
func (r *run) onward(states []state) ([]state, error) {
	type hook struct{ table, chain string }
	toNode := r.node.IsLocal(states[0].Dest.Addr())
	var hooks []hook
	switch {
	case states[0].Node:
		hooks = []hook{{"filter", "OUTPUT"}, {"nat", "POSTROUTING"}}
		if toNode { // by the loopback interface
			hooks = append(hooks, hook{"filter", "INPUT"})
		}
	case toNode:
		hooks = []hook{{"filter", "INPUT"}}
	default:
		hooks = []hook{{"filter", "FORWARD"}, {"nat", "POSTROUTING"}}
	}
	for _, h := range hooks {
		if h.chain == "INPUT" && states[0].Node {
			for i := range states {
				states[i].Interface = "lo"
				states[i].Confirmed = true // behind POSTROUTING
			}
		}
		var err error
		if states, err = r.pass(h.table, h.chain, states); err != nil {
			return nil, err
		}
	}
	return states, nil
}

// pass runs packets through a built-in chain, except those that were dropped or rejected.
func (r *run) pass(tableName, chainName string, states []state) ([]state, error) {
	var done []state
	c := r.tables[tableName][chainName]
	var work []state
	for _, s := range states {
		if s.end == dropped || s.end == rejected {
			done = append(done, s)
			continue
		}
		s.end, s.at = going, frame{chain: c}
		work = append(work, s)
	}
	for len(work) > 0 {
		s := work[len(work)-1]
		work = work[:len(work)-1]
		if s.end != going {
			done = append(done, s)
			continue
		}
		next, err := r.step(tableName, chainName, s)
		if err != nil {
			return nil, fmt.Errorf("table %s: %w", tableName, err)
		}
		work = append(work, next...)
	}
	return done, nil
}

// step applies one rule, or leaves a chain at its end.
func (r *run) step(tableName, hook string, s state) ([]state, error) {
	if s.at.next == len(s.at.chain.rules) {
		return []state{s.leave()}, nil
	}
	rule := s.at.chain.rules[s.at.next]
	name := s.at.chain.name
	s.at.next++
	s.met++
	hit, miss := s, s
	miss.share = 0
	for _, m := range rule.matches {
		p := m(r, &hit)
		miss.share += hit.share * (1 - p)
		if hit.share *= p; hit.share == 0 {
			break
		}
	}
	var next []state
	if miss.share > 0 {
		next = append(next, miss)
	}
	if hit.share == 0 {
		return next, nil
	}
	if line := tableName + " " + name + ": " + rule.text; !r.seen[line] {
		r.seen[line] = true
		r.trace = append(r.trace, line)
	}
	if err := r.apply(tableName, hook, rule.target, &hit); err != nil {
		return nil, fmt.Errorf("chain %s: %s: %w", name, rule.text, err)
	}
	return append(next, hit), nil
}

// leave returns to the chain that jumped here or, from a built-in one, applies its policy.
func (s state) leave() state {
	switch {
	case s.at.up != nil:
		s.at = *s.at.up
	case s.at.chain.policy == "DROP":
		s.end = dropped
	default:
		s.end = accepted
	}
	return s
}

func (r *run) apply(tableName, hook string, t target, s *state) error {
	switch t.does {
	case "ACCEPT":
		s.end = accepted
	case "DROP":
		s.end = dropped
	case "RETURN":
		*s = s.leave()
	case "jump", "goto":
		back := s.at
		s.at = frame{r.tables[tableName][t.chain], 0, &back}
		if t.does == "goto" {
			if s.at.up = back.up; back.up == nil {
				return errors.New("a goto out of a built-in chain")
			}
		}
	case "DNAT":
		if hook != "PREROUTING" && hook != "OUTPUT" {
			return fmt.Errorf("the destination can't be replaced in %s", hook)
		}
		// The kernel sets the state DNAT only if the destination differs.
		s.dnat, s.Dest, s.end = t.to != r.asked, t.to, accepted
	case "MASQUERADE":
		if hook != "POSTROUTING" {
			return fmt.Errorf("the source can't be replaced in %s", hook)
		}
		s.masq, s.end = true, accepted
	case "MARK":
		s.Mark = s.Mark&^t.mask ^ t.value
	case "REJECT":
		s.end, s.reset = rejected, t.with == "tcp-reset"
	}
	return nil
}
