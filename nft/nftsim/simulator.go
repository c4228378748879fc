package nftsim

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
)

// Simulator runs packets through one ruleset.
type Simulator struct {
	family     model.Family
	base       map[nft.Hook][]*nft.Chain // by priority
	chains     map[string]*nft.Chain
	sets       map[string]*set
	flowtables map[string]bool
	timeouts   map[string]bool
	local      map[netip.Addr]bool
	hashes     bool // see Hash
}

// set is a set with an index over its elements.
type set struct {
	nft.Set
	elements map[string]nft.Element
	ranges   []nft.Element // interval sets only, sorted
}

// New checks the content of a table, also between two rulesets, and indexes its elements. Packets to the node's
// addresses are for the node itself.
func New(of *nft.Table, nodeAddrs ...netip.Addr) (*Simulator, error) {
	s := &Simulator{
		family:     of.Family,
		base:       map[nft.Hook][]*nft.Chain{},
		chains:     map[string]*nft.Chain{},
		sets:       map[string]*set{},
		local:      map[netip.Addr]bool{},
		flowtables: map[string]bool{},
		timeouts:   map[string]bool{},
	}
	for _, t := range of.Flowtables {
		s.flowtables[t.Name] = true
	}
	for _, t := range of.Timeouts {
		s.timeouts[t.Name] = true
	}
	for _, a := range nodeAddrs {
		s.local[a] = true
	}
	for _, decl := range of.Sets {
		if s.sets[decl.Name] != nil {
			return nil, fmt.Errorf("set %s is declared twice", decl.Name)
		}
		s.sets[decl.Name] = &set{Set: decl, elements: map[string]nft.Element{}}
	}
	for i := range of.Chains {
		c := &of.Chains[i]
		if s.chains[c.Name] != nil {
			return nil, fmt.Errorf("chain %s is there twice", c.Name)
		}
		s.chains[c.Name] = c
		switch c.Hook {
		case nft.NoHook:
		case nft.Prerouting, nft.Output, nft.Postrouting, nft.Input, nft.Forward:
			s.base[c.Hook] = append(s.base[c.Hook], c)
		default:
			return nil, fmt.Errorf("chain %s hooks %v, which the simulator does not pass", c.Name, c.Hook)
		}
	}
	for _, list := range s.base {
		slices.SortStableFunc(list, func(a, b *nft.Chain) int { return cmp.Compare(a.Prio, b.Prio) })
	}
	for name := range of.Elements {
		for key := range of.Keys(name) {
			op, _ := of.Get(name, key)
			if err := s.addElement(name, op); err != nil {
				return nil, fmt.Errorf("%s: element %q: %w", name, key, err)
			}
		}
	}
	for _, set := range s.sets {
		if err := set.sortRanges(); err != nil {
			return nil, err
		}
	}
	for _, c := range s.chains {
		for i, rule := range c.Rules {
			if err := s.checkRule(rule); err != nil {
				return nil, fmt.Errorf("chain %s: rule %d: %w", c.Name, i+1, err)
			}
		}
	}
	return s, nil
}

// Hash makes each packet take, as long as it is on, the slot that its hash draws, as in the kernel. Without it,
// each slot gets an equal share of every packet.
func (s *Simulator) Hash(on bool) { s.hashes = on }

// Remember records an endpoint for a client, as an earlier packet would have. If one is recorded,
// it stays: "update" only renews the time of an element (nft_dynset_eval).
func (s *Simulator) Remember(name string, client netip.Addr, endpoint netip.AddrPort) error {
	key := string(nft.AppendAddr(nil, client))
	if set := s.sets[name]; set != nil {
		if _, ok := set.elements[key]; ok {
			return nil
		}
	}
	return s.addElement(name, nft.Element{
		Key:  key,
		Data: string(nft.AppendPort(nft.AppendAddr(nil, endpoint.Addr()), endpoint.Port())),
	})
}

func (s *Simulator) addElement(name string, e nft.Element) error {
	set := s.sets[name]
	if set == nil {
		return fmt.Errorf("no such set")
	}
	if _, ok := set.elements[e.Key]; ok {
		return fmt.Errorf("is there twice")
	}
	if want := nft.Width(s.family, set.Key); len(e.Key) != want {
		return fmt.Errorf("key has %d bytes, want %d", len(e.Key), want)
	}
	if want := nft.Width(s.family, set.Data); len(e.Data) != want {
		return fmt.Errorf("data has %d bytes, want %d", len(e.Data), want)
	}
	if set.Verdicts != (e.Verdict.Kind != nft.NoVerdict) {
		return fmt.Errorf("verdict %q in a map where verdicts is %v", e.Verdict, set.Verdicts)
	}
	if set.Verdicts {
		if err := s.checkVerdict(e.Verdict); err != nil {
			return err
		}
	}
	set.elements[e.Key] = e
	return nil
}

func (s *set) sortRanges() error {
	if !s.Interval {
		return nil
	}
	if len(s.Key) > 1 {
		return s.checkRanges()
	}
	for _, e := range s.elements {
		s.ranges = append(s.ranges, e)
	}
	slices.SortFunc(s.ranges, func(a, b nft.Element) int { return strings.Compare(a.Key, b.Key) })
	for i, e := range s.ranges {
		if e.End != "" && e.End <= e.Key {
			return fmt.Errorf("set %s: range %d ends before it begins", s.Name, i+1)
		}
		if i+1 < len(s.ranges) && (e.End == "" || e.End > s.ranges[i+1].Key) {
			return fmt.Errorf("set %s: range %d overlaps the next", s.Name, i+1)
		}
	}
	return nil
}

// checkRanges checks a set of ranges in the last component of the key. They must not overlap
// (nft_pipapo_insert).
func (s *set) checkRanges() error {
	for _, e := range s.elements {
		if len(e.End) != len(e.Key) || e.End < e.Key {
			return fmt.Errorf("set %s: a range ends before it begins", s.Name)
		}
		for _, o := range s.ranges {
			if e.Key <= o.End && o.Key <= e.End {
				return fmt.Errorf("set %s: ranges overlap", s.Name)
			}
		}
		s.ranges = append(s.ranges, e)
	}
	return nil
}

// find returns the element for a key.
func (s *set) find(key string) (nft.Element, bool) {
	if !s.Interval {
		e, ok := s.elements[key]
		return e, ok
	}
	if len(s.Key) > 1 {
		i := slices.IndexFunc(s.ranges, func(e nft.Element) bool { return e.Key <= key && key <= e.End })
		if i < 0 {
			return nft.Element{}, false
		}
		return s.ranges[i], true
	}
	i, found := slices.BinarySearchFunc(s.ranges, key,
		func(e nft.Element, key string) int { return strings.Compare(e.Key, key) })
	if !found {
		i--
	}
	if i < 0 || (s.ranges[i].End != "" && key >= s.ranges[i].End) {
		return nft.Element{}, false
	}
	return s.ranges[i], true
}

func (s *Simulator) checkVerdict(v nft.Verdict) error {
	switch v.Kind {
	case nft.DropPacket, nft.Return:
		return nil
	case nft.Jump, nft.Goto:
		c := s.chains[v.Chain]
		if c == nil {
			return fmt.Errorf("%v: no such chain", v)
		}
		if c.Hook != nft.NoHook {
			return fmt.Errorf("%v: that is a base chain", v)
		}
		return nil
	case nft.NoVerdict:
	}
	return fmt.Errorf("unknown verdict %d", v.Kind)
}

// checkKey checks that a set can be looked up by a key.
func (s *Simulator) checkKey(key nft.Key, name string) (*set, error) {
	set := s.sets[name]
	if set == nil {
		return nil, fmt.Errorf("no set %s", name)
	}
	types := make([]nft.Type, len(key))
	for i, e := range key {
		switch e.Field {
		case nft.SourceAddr, nft.DestAddr, nft.OrigDestAddr:
			types[i] = nft.Addr
		case nft.Protocol:
			types[i] = nft.Proto
		case nft.DestPort, nft.OrigDestPort, nft.SourcePort:
			types[i] = nft.Service
		case nft.Constant:
			types[i] = nft.Slot
		case nft.RandomSlot, nft.HashSlot, nft.FlowSlot:
			types[i] = nft.Slot
			if e.Mod == 0 {
				return nil, fmt.Errorf("a choice among 0 slots")
			}
		default:
			return nil, fmt.Errorf("unknown field %d", e.Field)
		}
	}
	if !slices.Equal(types, set.Key) {
		return nil, fmt.Errorf("set %s has another key than the rule", name)
	}
	return set, nil
}

// checkClients checks that a map can remember clients.
func (s *Simulator) checkClients(name string) error {
	set, err := s.checkKey(nft.Key{{Field: nft.SourceAddr}}, name)
	if err == nil && (!set.Dynamic || !slices.Equal(set.Data, []nft.Type{nft.Addr, nft.Service})) {
		err = fmt.Errorf("map %s can't remember addresses and ports", name)
	}
	return err
}

func (s *Simulator) checkRule(rule nft.Rule) error {
	for _, stmt := range rule {
		var err error
		switch stmt := stmt.(type) {
		case nft.MatchProtocol, nft.MatchSource, nft.Match, nft.MatchInterface, nft.Masquerade, nft.Reject, nft.ReadRule:
		case nft.AddFlow:
			if !s.flowtables[stmt.Flowtable] {
				err = fmt.Errorf("no flowtable %s", stmt.Flowtable)
			}
		case nft.SetTimeout:
			if !s.timeouts[stmt.Timeout] {
				err = fmt.Errorf("no timeout policy %s", stmt.Timeout)
			}
		case nft.Discard:
			_, err = s.checkKey(stmt.Key, stmt.Set)
		case nft.MatchRepeated:
			var set *set
			if set, err = s.checkKey(stmt.Key, stmt.Set); err == nil && !set.Dynamic {
				err = fmt.Errorf("packets can't add to set %s", stmt.Set)
			}
		case nft.InSet:
			_, err = s.checkKey(stmt.Key, stmt.Set)
		case nft.VerdictMap:
			var set *set
			if set, err = s.checkKey(stmt.Key, stmt.Map); err == nil && !set.Verdicts {
				err = fmt.Errorf("map %s has no verdicts", stmt.Map)
			}
		case nft.DNAT:
			var set *set
			if set, err = s.checkKey(stmt.Key, stmt.Map); err == nil &&
				!slices.Equal(set.Data, []nft.Type{nft.Addr, nft.Service}) {
				err = fmt.Errorf("map %s has no addresses and ports", stmt.Map)
			}
		case nft.Remember:
			err = s.checkClients(stmt.Map)
		case nft.Forget:
			err = s.checkClients(stmt.Map)
		case nft.Verdict:
			err = s.checkVerdict(stmt)
		default:
			err = fmt.Errorf("unknown statement %T", stmt)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
