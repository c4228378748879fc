package tablesim

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// Table is a table of one family.
type Table struct {
	Family model.Family
	Name   string
	Chains map[string]*Chain
	Sets   map[string]*Set

	base map[string][]*Chain // by hook, in the order of their priorities
}

// NewTable returns an empty table.
func NewTable(f model.Family, name string) *Table {
	return &Table{Family: f, Name: name, Chains: map[string]*Chain{}, Sets: map[string]*Set{}}
}

// Chain is a chain. Only base chains have a hook.
type Chain struct {
	Name     string
	Hook     string // "prerouting", …; or ""
	NAT      bool
	Priority int
	Drop     bool // its policy
	Rules    []Rule
}

// Rule is one rule.
type Rule []Statement

// Statement is a part of a rule.
type Statement interface{ isStatement() }

// The statements.
type (
	// Match compares a key with the elements of a set.
	Match struct {
		Key Key
		Not bool
		In  *Set
	}
	// VerdictMap applies the verdict of an element, if there is one.
	VerdictMap struct {
		Key Key
		Map *Set
	}
	// Verdict ends a rule.
	Verdict struct {
		Kind  VerdictKind
		Chain string // of Jump and Goto
	}
	// DNAT replaces the destination: by To, or by the data of an element.
	DNAT struct {
		To  netip.AddrPort
		Key Key
		Map *Set // nil: To
	}
	// SetMark sets the packet mark to mark & And ^ Xor.
	SetMark struct{ And, Xor uint32 }
	// Masquerade replaces the source by the node's address.
	Masquerade struct{}
	// Reject answers with an error.
	Reject struct{ TCPReset bool }
)

func (Match) isStatement()      {}
func (VerdictMap) isStatement() {}
func (Verdict) isStatement()    {}
func (DNAT) isStatement()       {}
func (SetMark) isStatement()    {}
func (Masquerade) isStatement() {}
func (Reject) isStatement()     {}

// VerdictKind is a verdict.
type VerdictKind uint8

// The verdicts.
const (
	NoVerdict VerdictKind = iota
	Accept
	Drop
	Return
	Jump
	Goto
)

// Field is a property of a packet.
type Field uint8

// The fields. In keys, numbers have the network's byte order.
const (
	SourceAddr  Field = iota // 4 or 16 bytes
	DestAddr                 // 4 or 16 bytes
	Protocol                 // 1 byte
	SourcePort               // 2 bytes
	DestPort                 // 2 bytes
	Mark                     // 4 bytes
	State                    // 4 bytes: ct state, a bit
	Status                   // 4 bytes: ct status, bits
	Interface                // the name of the input interface
	SourceLocal              // 4 bytes: fib saddr type
	DestLocal                // 4 bytes: fib daddr type
	Random                   // 4 bytes: numgen random mod Expr.Mod
)

// Values of [State], [Status], [SourceLocal] and [DestLocal].
const (
	StateNew    = 0x08 // NF_CT_STATE_BIT(IP_CT_NEW)
	StatusDNAT  = 0x20 // IPS_DST_NAT
	TypeUnicast = 1    // RTN_UNICAST
	TypeLocal   = 2    // RTN_LOCAL
)

// Expr is one component of a key.
type Expr struct {
	Field Field
	Mod   uint32 // of Random
	Mask  []byte // nil: none
}

// Key is what a set is looked up by.
type Key []Expr

// Set is a named or anonymous set or map.
type Set struct {
	Name     string
	Elements []Element

	exact  map[string]int // by the joined key: elements without ranges
	ranges []int
}

// Element is an element of a set.
type Element struct {
	From, To [][]byte // each component; To is nil without ranges
	Verdict  Verdict
	Data     netip.AddrPort
	Comment  string
}

// index makes lookups fast.
func (s *Set) index() {
	s.exact, s.ranges = make(map[string]int, len(s.Elements)), nil
	for i, e := range s.Elements {
		wildcard := slices.ContainsFunc(e.From, func(b []byte) bool { return len(b) > 0 && b[len(b)-1] == '*' })
		if e.To != nil || wildcard {
			s.ranges = append(s.ranges, i)
		} else {
			s.exact[string(slices.Concat(e.From...))] = i
		}
	}
}

// find returns the element for the components of a key.
func (s *Set) find(key Key, values [][]byte) (Element, bool) {
	if i, ok := s.exact[string(slices.Concat(values...))]; ok {
		return s.Elements[i], true
	}
	for _, i := range s.ranges {
		if s.Elements[i].has(key, values) {
			return s.Elements[i], true
		}
	}
	return Element{}, false
}

func (e Element) has(key Key, values [][]byte) bool {
	for i, v := range values {
		from, to := string(e.From[i]), string(e.From[i])
		if e.To != nil {
			to = string(e.To[i])
		}
		if prefix, ok := strings.CutSuffix(from, "*"); ok && key[i].Field == Interface {
			if !strings.HasPrefix(string(v), prefix) {
				return false
			}
			continue
		}
		if len(v) != len(from) || string(v) < from || string(v) > to {
			return false
		}
	}
	return true
}

// Check checks the table, and prepares it for Run. The table must not change afterwards.
func (t *Table) Check() error {
	for _, s := range t.Sets {
		if err := t.checkSet(s); err != nil {
			return fmt.Errorf("set %s: %w", s.Name, err)
		}
	}
	t.base = map[string][]*Chain{}
	for _, name := range slices.Sorted(maps.Keys(t.Chains)) {
		if c := t.Chains[name]; c.Hook != "" {
			t.base[c.Hook] = append(t.base[c.Hook], c)
		}
		for i, rule := range t.Chains[name].Rules {
			for _, st := range rule {
				if err := t.checkStatement(st); err != nil {
					return fmt.Errorf("chain %s: rule %d: %w", name, i+1, err)
				}
			}
		}
	}
	for _, chains := range t.base {
		slices.SortStableFunc(chains, func(a, b *Chain) int { return cmp.Compare(a.Priority, b.Priority) })
	}
	return nil
}

func (t *Table) checkSet(s *Set) error {
	s.index()
	for _, e := range s.Elements {
		if err := t.checkVerdict(e.Verdict); err != nil {
			return err
		}
	}
	return nil
}

func (t *Table) checkVerdict(v Verdict) error {
	if v.Kind != Jump && v.Kind != Goto {
		return nil
	}
	if c := t.Chains[v.Chain]; c == nil || c.Hook != "" {
		return fmt.Errorf("no chain %s to go to", v.Chain)
	}
	return nil
}

func (t *Table) checkStatement(st Statement) error {
	var key Key
	var in *Set
	switch st := st.(type) {
	case Verdict:
		return t.checkVerdict(st)
	case Match:
		key, in = st.Key, st.In
	case VerdictMap:
		key, in = st.Key, st.Map
	case DNAT:
		if st.Map == nil {
			return nil
		}
		key, in = st.Key, st.Map
	default:
		return nil
	}
	if in == nil {
		return fmt.Errorf("no set to look into")
	}
	if t.Sets[in.Name] != in { // anonymous
		if err := t.checkSet(in); err != nil {
			return err
		}
	}
	for _, e := range key {
		if e.Mod > maxRandom {
			return fmt.Errorf("a choice among %d, more than %d", e.Mod, maxRandom)
		}
	}
	for _, e := range in.Elements {
		if len(e.From) != len(key) || e.To != nil && len(e.To) != len(key) {
			return fmt.Errorf("set %s: an element has %d components, the key %d", in.Name, len(e.From), len(key))
		}
	}
	return nil
}

// maxRandom is the largest number of endpoints that a rule chooses among.
const maxRandom = 1 << 16

func number(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }
