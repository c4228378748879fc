package iptsim

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// Simulator runs packets through tables.
type Simulator struct {
	*Tables
	local  map[netip.Addr]bool
	recent map[string]map[netip.Addr]bool
}

// maxJumps is NFT_JUMP_STACK_SIZE, which binds the variant nft. It counts gotos as well.
const maxJumps = 16

// New returns a simulator. The node's addresses decide which packets are for the node itself.
func New(t *Tables, nodeAddrs ...netip.Addr) (*Simulator, error) {
	s := &Simulator{t.Clone(), map[netip.Addr]bool{}, map[string]map[netip.Addr]bool{}}
	for _, a := range nodeAddrs {
		s.local[a] = true
	}
	for name, chains := range t.tables {
		depth := map[string]int{}
		for _, c := range builtin[name] {
			n, err := chains.depth(c, depth)
			if err == nil && n > maxJumps {
				err = fmt.Errorf("%d jumps deep, at most %d are allowed", n, maxJumps)
			}
			if err != nil {
				return nil, fmt.Errorf("table %s: chain %s: %w", name, c, err)
			}
		}
	}
	return s, nil
}

// depth returns how many jumps deep a chain leads; -1 marks those that are being looked at.
func (t table) depth(name string, known map[string]int) (int, error) {
	if n, ok := known[name]; ok {
		if n < 0 {
			return 0, fmt.Errorf("a loop through %s", name)
		}
		return n, nil
	}
	known[name] = -1
	deepest := 0
	for _, r := range t[name].rules {
		if j, ok := r.Target.(Jump); ok {
			n, err := t.depth(j.Chain, known)
			if err != nil {
				return 0, err
			}
			deepest = max(deepest, n+1)
		}
	}
	known[name] = deepest
	return deepest, nil
}

// Remember puts an address into an xt_recent list.
func (s *Simulator) Remember(list string, a netip.Addr) {
	if s.recent[list] == nil {
		s.recent[list] = map[netip.Addr]bool{}
	}
	s.recent[list][a] = true
}

// run is one packet's way.
type run struct {
	*Simulator
	packet model.Connection
	trace  []string
	seen   map[string]bool
}

// state is a share of the packets on its way.
type state struct {
	share    float64
	dest     netip.AddrPort
	iface    string
	mark     uint32
	dnat     bool
	masq     bool
	recorded []string
	met      int

	stack []frame
	end   ending
	reset bool
}

// frame is a place in a chain.
type frame struct {
	chain *chain
	next  int
}

type ending uint8

const (
	going ending = iota
	accepted
	dropped
	rejected
)

// Run runs the first packet of a connection through the tables.
func (s *Simulator) Run(c model.Connection) (Outcome, error) {
	r := &run{Simulator: s, packet: c, seen: map[string]bool{}}
	o, err := r.run()
	o.Trace = r.trace
	if err != nil {
		err = fmt.Errorf("%+v: %w", c, err)
	}
	return o, err
}

func (r *run) run() (Outcome, error) {
	p := r.packet
	if f := model.FamilyOf(p.Dest.Addr()); f != r.family || model.FamilyOf(p.Source) != f {
		return Outcome{}, fmt.Errorf("the tables are for %v alone", r.family)
	}
	start := state{share: 1, dest: p.Dest, iface: p.Interface}
	first := "PREROUTING"
	if p.Node {
		first, start.iface = "OUTPUT", ""
	}
	states, err := r.pass("nat", first, []state{start})
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

// onward takes packets from where their destination is known to the end.
func (r *run) onward(states []state) ([]state, error) {
	type hook struct{ table, chain string }
	toNode := r.local[states[0].dest.Addr()]
	var hooks []hook
	switch {
	case r.packet.Node:
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
		var err error
		if states, err = r.pass(h.table, h.chain, states); err != nil {
			return nil, err
		}
	}
	return states, nil
}

// pass runs packets through a built-in chain. What was dropped or rejected before stays so.
func (r *run) pass(tableName, chainName string, states []state) ([]state, error) {
	var done []state
	c := r.tables[tableName][chainName]
	var work []state
	for _, s := range states {
		if s.end == dropped || s.end == rejected {
			done = append(done, s)
			continue
		}
		s.end, s.stack = going, []frame{{c, 0}}
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
	top := &s.stack[len(s.stack)-1]
	if top.next == len(top.chain.rules) {
		return []state{s.leave()}, nil
	}
	rule := top.chain.rules[top.next]
	name := top.chain.name
	s.stack = slices.Clone(s.stack)
	s.stack[len(s.stack)-1].next++
	s.met++
	hit, miss := s, s
	hit.stack, hit.recorded = slices.Clone(s.stack), slices.Clone(s.recorded)
	miss.share = 0
	for _, m := range rule.Matches {
		p := m.holds(r, &hit)
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
	if line := tableName + " " + name + ": " + rule.Text; !r.seen[line] {
		r.seen[line] = true
		r.trace = append(r.trace, line)
	}
	if err := r.apply(tableName, hook, rule.Target, &hit); err != nil {
		return nil, fmt.Errorf("chain %s: %s: %w", name, rule.Text, err)
	}
	return append(next, hit), nil
}

// leave returns to the chain that jumped here or, from a built-in one, does what its policy says.
func (s state) leave() state {
	bottom := s.stack[0].chain
	s.stack = s.stack[:len(s.stack)-1]
	if len(s.stack) > 0 {
		return s
	}
	if s.end = accepted; bottom.policy == "DROP" {
		s.end = dropped
	}
	return s
}

func (r *run) apply(tableName, hook string, t Target, s *state) error {
	switch t := t.(type) {
	case Verdict:
		switch t {
		case "ACCEPT":
			s.end = accepted
		case "DROP":
			s.end = dropped
		default:
			*s = s.leave()
		}
	case Jump:
		to := frame{r.tables[tableName][t.Chain], 0}
		if t.Goto {
			if len(s.stack) == 1 {
				return errors.New("a goto out of a built-in chain")
			}
			s.stack[len(s.stack)-1] = to
		} else {
			s.stack = append(s.stack, to)
		}
	case DNAT:
		if hook != "PREROUTING" && hook != "OUTPUT" {
			return fmt.Errorf("the destination can't be replaced in %s", hook)
		}
		// The kernel notes that it was only if it is another one.
		s.dnat, s.dest, s.end = t.To != r.packet.Dest, t.To, accepted
	case Masquerade:
		if hook != "POSTROUTING" {
			return fmt.Errorf("the source can't be replaced in %s", hook)
		}
		s.masq, s.end = true, accepted
	case SetMark:
		s.mark = s.mark&^t.Mask ^ t.Value
	case Reject:
		s.end, s.reset = rejected, t.With == "tcp-reset"
	default:
		return fmt.Errorf("unknown target %T", t)
	}
	return nil
}

// yes is the share of a match that holds for all packets or for none.
func yes(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (m Address) holds(r *run, s *state) float64 {
	a := r.packet.Source
	if m.Dest {
		a = s.dest.Addr()
	}
	return yes((masked(a, m.Mask) == m.Addr) != m.Not)
}

func (m Interface) holds(_ *run, s *state) float64 {
	has := s.iface == m.Name || m.Wildcard && strings.HasPrefix(s.iface, m.Name)
	return yes(has != m.Not)
}

func (m Protocol) holds(r *run, _ *state) float64 { return yes(r.packet.Protocol == m.Protocol) }

func (m Ports) holds(_ *run, s *state) float64 {
	return yes(s.dest.Port() >= m.First && s.dest.Port() <= m.Last)
}

func (Comment) holds(*run, *state) float64 { return 1 }

func (m Mark) holds(_ *run, s *state) float64 { return yes((s.mark&m.Mask == m.Value) != m.Not) }

func (m State) holds(_ *run, s *state) float64 {
	return yes(slices.Contains(m.Any, "NEW") || s.dnat && slices.Contains(m.Any, "DNAT"))
}

func (m SourceType) holds(r *run, _ *state) float64 {
	return yes((r.packet.Node || r.local[r.packet.Source]) != m.Not)
}

func (m Statistic) holds(*run, *state) float64 { return m.Share }

func (m Recent) holds(r *run, s *state) float64 {
	if m.Set || r.recent[m.Name][r.packet.Source] {
		s.recorded = append(s.recorded, m.Name)
		return 1
	}
	return 0
}
