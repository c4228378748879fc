package tablesim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// maxDepth is more than the kernel allows (NFT_JUMP_STACK_SIZE); maxSteps ends a table that jumps
// again and again.
const (
	maxDepth = 32
	maxSteps = 1 << 20
)

type ending uint8

const (
	going ending = iota // at the end of a chain
	accepted
	dropped
	rejected
)

// state is a share of the packets on its way.
type state struct {
	model.Connection
	asked netip.AddrPort
	mark  uint32
	masq  bool
	share float64
	end   ending
	reset bool
}

// run is one packet's way.
type run struct {
	*Table
	isLocal func(netip.Addr) bool
	steps   int
}

// Run runs the first packet of a connection through the table, which must be checked.
func (t *Table) Run(isLocal func(netip.Addr) bool, c model.Connection) (modeltest.Outcome, error) {
	if model.FamilyOf(c.Dest.Addr()) != t.Family || model.FamilyOf(c.Source) != t.Family {
		return modeltest.Outcome{}, fmt.Errorf("the table is for %v alone", t.Family)
	}
	if c.Node {
		c.Interface = ""
	}
	r := &run{Table: t, isLocal: isLocal}
	first := "prerouting"
	if c.Node {
		first = "output"
	}
	states, err := r.hook(first, state{Connection: c, asked: c.Dest, share: 1})
	if err != nil {
		return modeltest.Outcome{}, err
	}
	var all []state
	for _, s := range states {
		list := []state{s}
		for _, hook := range r.after(s) {
			if list, err = r.all(hook, list); err != nil {
				return modeltest.Outcome{}, err
			}
		}
		all = append(all, list...)
	}
	return outcome(all)
}

// after returns the hooks behind the first one.
func (r *run) after(s state) []string {
	toNode := r.isLocal(s.Dest.Addr())
	switch {
	case s.Node && toNode:
		return []string{"postrouting", "input"}
	case s.Node:
		return []string{"postrouting"}
	case toNode:
		return []string{"input"}
	}
	return []string{"forward", "postrouting"}
}

func (r *run) all(hook string, states []state) (list []state, err error) {
	for _, s := range states {
		next, err := r.hook(hook, s)
		if err != nil {
			return nil, err
		}
		list = append(list, next...)
	}
	return list, nil
}

// hook runs a packet through the base chains of a hook.
func (r *run) hook(hook string, s state) ([]state, error) {
	if hook == "input" && s.Node {
		s.Interface = "lo"
	}
	states := []state{s}
	for _, c := range r.base[hook] {
		var next []state
		for _, s := range states {
			if s.end == dropped || s.end == rejected {
				next = append(next, s)
				continue
			}
			s.end = going
			list, err := r.exec(c, 0, 0, s, 0)
			if err != nil {
				return nil, err
			}
			for _, s := range list {
				if s.end == going && c.Drop {
					s.end = dropped
				}
				next = append(next, s)
			}
		}
		states = next
	}
	return states, nil
}

// exec runs a packet through a chain from a statement of a rule on.
func (r *run) exec(c *Chain, rule, at int, s state, depth int) ([]state, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("chain %s: too many jumps", c.Name)
	}
	for ; rule < len(c.Rules); rule, at = rule+1, 0 {
		if err := r.step(); err != nil {
			return nil, fmt.Errorf("chain %s: %w", c.Name, err)
		}
	statements:
		for ; at < len(c.Rules[rule]); at++ {
			switch st := c.Rules[rule][at].(type) {
			case Match:
				values, err := r.values(st.Key, s)
				if err != nil {
					return nil, fmt.Errorf("chain %s: %w", c.Name, err)
				}
				if _, ok := st.In.find(st.Key, values); ok == st.Not {
					break statements
				}
			case VerdictMap:
				return r.choose(c, rule, s, depth, st.Key, st.Map, func(e Element, s state) ([]state, error) {
					return r.verdict(c, rule, at, s, depth, e.Verdict)
				})
			case Verdict:
				return r.verdict(c, rule, at, s, depth, st)
			case DNAT:
				if st.Map == nil {
					s.Dest, s.end = st.To, accepted
					return []state{s}, nil
				}
				return r.choose(c, rule, s, depth, st.Key, st.Map, func(e Element, s state) ([]state, error) {
					s.Dest, s.end = e.Data, accepted
					return []state{s}, nil
				})
			case SetMark:
				s.mark = s.mark&st.And ^ st.Xor
			case Masquerade:
				s.masq, s.end = true, accepted
				return []state{s}, nil
			case Reject:
				s.end, s.reset = rejected, st.TCPReset
				return []state{s}, nil
			}
		}
	}
	return []state{s}, nil
}

func (r *run) step() error {
	if r.steps++; r.steps > maxSteps {
		return errors.New("too many rules on the way")
	}
	return nil
}

// choose looks a key up in a map. If it has a random number, each one gets a share of the packets.
// Where the map has nothing, the next rule follows.
func (r *run) choose(c *Chain, rule int, s state, depth int, key Key, in *Set, hit func(Element, state) ([]state, error)) ([]state, error) {
	random := slices.IndexFunc(key, func(e Expr) bool { return e.Field == Random })
	n := uint32(1)
	if random >= 0 {
		n = max(1, key[random].Mod)
	}
	var all []state
	share := s.share / float64(n)
	for i := range n {
		s.share = share
		if err := r.step(); err != nil {
			return nil, fmt.Errorf("chain %s: %w", c.Name, err)
		}
		values, err := r.values(key, s)
		if err != nil {
			return nil, err
		}
		if random >= 0 {
			values[random] = number(i)
		}
		e, ok := in.find(key, values)
		var next []state
		if ok {
			next, err = hit(e, s)
		} else {
			next, err = r.exec(c, rule+1, 0, s, depth)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, next...)
	}
	return all, nil
}

func (r *run) verdict(c *Chain, rule, at int, s state, depth int, v Verdict) ([]state, error) {
	switch v.Kind {
	case Accept:
		s.end = accepted
	case Drop:
		s.end = dropped
	case Return:
	case Goto:
		return r.exec(r.Chains[v.Chain], 0, 0, s, depth+1)
	case Jump:
		list, err := r.exec(r.Chains[v.Chain], 0, 0, s, depth+1)
		if err != nil {
			return nil, err
		}
		var all []state
		for _, s := range list {
			next := []state{s}
			if s.end == going {
				if next, err = r.exec(c, rule, at+1, s, depth); err != nil {
					return nil, err
				}
			}
			all = append(all, next...)
		}
		return all, nil
	case NoVerdict:
		return nil, fmt.Errorf("chain %s: an element without a verdict", c.Name)
	}
	return []state{s}, nil
}

// values returns the components of a packet's key.
func (r *run) values(key Key, s state) ([][]byte, error) {
	list := make([][]byte, len(key))
	for i, e := range key {
		var b []byte
		switch e.Field {
		case SourceAddr:
			b = s.Source.AsSlice()
		case DestAddr:
			b = s.Dest.Addr().AsSlice()
		case Protocol:
			b = []byte{byte(s.Protocol)}
		case SourcePort:
			b = binary.BigEndian.AppendUint16(nil, modeltest.ClientPort)
		case DestPort:
			b = binary.BigEndian.AppendUint16(nil, s.Dest.Port())
		case Mark:
			b = number(s.mark)
		case State:
			b = number(StateNew)
		case Status:
			b = number(0)
			if s.Dest != s.asked {
				b = number(StatusDNAT)
			}
		case Interface:
			b = []byte(s.Interface)
		case SourceLocal:
			b = r.addressType(s.Node || r.isLocal(s.Source))
		case DestLocal:
			b = r.addressType(r.isLocal(s.Dest.Addr()))
		case Random:
			b = number(0)
		default:
			return nil, fmt.Errorf("unknown field %d", e.Field)
		}
		if e.Mask != nil {
			if len(e.Mask) != len(b) {
				return nil, errors.New("a mask has another length than its field")
			}
			for j := range b {
				b[j] &= e.Mask[j]
			}
		}
		list[i] = b
	}
	return list, nil
}

func (r *run) addressType(local bool) []byte {
	if local {
		return number(TypeLocal)
	}
	return number(TypeUnicast)
}

// outcome joins the results of all shares.
func outcome(all []state) (modeltest.Outcome, error) {
	o := modeltest.Outcome{Verdict: model.Forwarded, To: map[netip.AddrPort]modeltest.Arrival{}}
	for _, s := range all {
		if (s.end == dropped) != (all[0].end == dropped) || (s.end == rejected) != (all[0].end == rejected) {
			return o, fmt.Errorf("chance decides between verdicts: %+v and %+v", all[0], s)
		}
	}
	for _, s := range all {
		switch s.end {
		case dropped:
			return modeltest.Outcome{Verdict: model.Dropped}, nil
		case rejected:
			return modeltest.Outcome{Verdict: model.Rejected, TCPReset: s.reset}, nil
		case going, accepted:
		}
		a := o.To[s.Dest]
		if a.Share > 0 && a.Masquerade != s.masq {
			return o, fmt.Errorf("chance decides whether a packet to %v is masqueraded", s.Dest)
		}
		o.To[s.Dest] = modeltest.Arrival{Share: a.Share + s.share, Masquerade: s.masq}
	}
	return o, nil
}
