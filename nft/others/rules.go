package others

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/google/nftables/expr"
	"github.com/google/nftables/xt"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/internal/nfnl"
)

// Line is a rule of somebody's, for people.
type Line struct {
	Place    Place
	Handle   uint64
	Position int    // in its chain, from 1 on
	Text     string // as nft writes it, as far as its expressions are known
	Comment  string
	Decides  bool // its last expression is a verdict, which Text has
	Drops    bool // it drops the packet, or may: its verdict is that of a map
	Rejects  bool // it answers with an error
	DNAT     bool // it replaces the destination
	Marks    bool // it sets the packet's mark, or the connection's
	Untracks bool // it keeps the packet from connection tracking
	// To is the address to which it translates the destination; invalid: there is none, or several.
	To netip.Addr

	target string // the chain to which it leads
}

// Base is a chain that the kernel calls.
type Base struct {
	Place    Place
	Hook     Hook
	Priority int32
	Drops    bool // by its policy
}

// Ruleset reads rules of all tables.
type Ruleset struct {
	reader *reader
	lines  map[Place]map[uint64]Line
	Bases  []Base
}

// ReadRuleset reads the base chains of all tables. Rules are read when they are asked for. Without nf_tables, there are
// none.
func ReadRuleset() (*Ruleset, error) {
	reader, err := openReader()
	if reader == nil {
		return &Ruleset{}, err
	}
	r := &Ruleset{reader: reader, lines: map[Place]map[uint64]Line{}}
	if _, err = reader.tables(); err == nil {
		err = r.readBases()
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func (r *Ruleset) readBases() error {
	chains, err := list(r.reader, unix.NFT_MSG_GETCHAIN, Place{}, decodeChain)
	if err != nil && !nfnl.IsMissing(err) {
		return fmt.Errorf("list chains: %w", err)
	}
	for _, c := range chains {
		if !c.base || c.IsOurs() || c.Family == "netdev" || c.Family == "arp" {
			continue
		}
		for _, h := range hooks {
			if uint32(h.number) == c.hook {
				r.Bases = append(r.Bases, Base{Place: c.Place, Hook: h.hook, Priority: c.priority, Drops: c.drops})
			}
		}
	}
	return nil
}

// Close ends the connection.
func (r *Ruleset) Close() {
	if r.reader != nil {
		_ = r.reader.Close()
	}
}

// Line returns a rule by its handle. If it is not there any more, or cannot be read, only its place is known.
func (r *Ruleset) Line(p Place, handle uint64) Line {
	lines, ok := r.lines[p]
	if !ok {
		lines, _ = r.read(p)
		r.lines[p] = lines
	}
	if l, ok := lines[handle]; ok {
		return l
	}
	return Line{Place: p, Handle: handle}
}

// Reached returns the rules of a base chain and of the chains to which these lead, in no order. Chains for which
// skip returns true are left out.
func (r *Ruleset) Reached(b Base, skip func(Place) bool) (lines []Line, err error) {
	seen := map[Place]bool{}
	for todo := []Place{b.Place}; len(todo) > 0; {
		p := todo[0]
		todo = todo[1:]
		if seen[p] || skip(p) {
			continue
		}
		seen[p] = true
		rules, err := r.read(p)
		if err != nil {
			return nil, err
		}
		for _, l := range rules {
			lines = append(lines, l)
			if l.target != "" {
				todo = append(todo, Place{p.Family, p.Table, l.target})
			}
		}
	}
	return lines, nil
}

func (r *Ruleset) read(p Place) (lines map[uint64]Line, err error) {
	lines = map[uint64]Line{}
	if r.reader == nil {
		return lines, nil
	}
	rules, err := list(r.reader, unix.NFT_MSG_GETRULE, p, decodeRule)
	if err != nil {
		return nil, fmt.Errorf("list the rules of chain %s of table %s %s: %w", p.Chain, p.Family, p.Table, err)
	}
	for i, rule := range rules {
		l := rule.line(func(set string) [][]byte { return r.elements(p, set) })
		l.Place, l.Position = p, i+1
		lines[rule.handle] = l
	}
	return lines, nil
}

// line returns the rule for people. elements returns the elements of an anonymous set.
func (r rule) line(elements func(set string) [][]byte) Line {
	l := Line{Handle: r.handle, Comment: r.comment, Text: ruleText(r.exprs, elements)}
	constants := map[uint32][]byte{}
	for _, e := range r.exprs {
		l.note(e, constants)
	}
	l.To = l.To.Unmap()
	return l
}

// note notes what an expression does to a packet. constants are those that expressions before it have loaded.
func (l *Line) note(e any, constants map[uint32][]byte) {
	switch e := e.(type) {
	case *expr.Immediate:
		constants[e.Register] = e.Data
	case unread:
		l.Drops = l.Drops || e == "immediate" // a verdict, perhaps
	case *expr.Verdict:
		l.Decides, l.Drops = true, e.Kind == expr.VerdictDrop
		l.target = e.Chain
	case *expr.Lookup:
		l.Drops = l.Drops || e.IsDestRegSet && e.DestRegister == unix.NFT_REG_VERDICT
	case *expr.Reject:
		l.Rejects = true
	case *expr.Redir:
		l.DNAT = true
	case *expr.NAT:
		if e.Type == expr.NATTypeDestNAT {
			l.DNAT = true
			l.To, _ = netip.AddrFromSlice(constants[e.RegAddrMin])
		}
	case *expr.Notrack:
		l.Untracks = true
	case *expr.Meta:
		l.Marks = l.Marks || e.SourceRegister && e.Key == expr.MetaKeyMARK
	case *expr.Ct:
		l.Marks = l.Marks || e.SourceRegister && e.Key == expr.CtKeyMARK
	case *expr.Match:
		if c, ok := e.Info.(*xt.Comment); ok {
			l.Comment = string(*c)
		}
	case *expr.Target: // of iptables-nft
		switch e.Name {
		case "REJECT":
			l.Rejects = true
		case "DNAT", "REDIRECT":
			l.DNAT = true
		case "MARK", "CONNMARK":
			l.Marks = true
		}
		if to, ok := e.Info.(*xt.NatRange2); ok && e.Name == "DNAT" {
			l.To, _ = netip.AddrFromSlice(to.MinIP)
		}
		l.Untracks = l.Untracks || untracks(e)
	}
}

// elements returns the keys of an anonymous set.
func (r *Ruleset) elements(t Place, name string) [][]byte {
	sets, err := list(r.reader, unix.NFT_MSG_GETSET, Place{Family: t.Family, Table: t.Table}, decodeSet)
	i := slices.IndexFunc(sets, func(s set) bool { return s.name == name })
	if err != nil || i < 0 || sets[i].interval || sets[i].isMap {
		return nil
	}
	keys, _ := r.reader.keys(t, name)
	return keys
}

// TableNames returns the names of all tables of a family. Without nf_tables there are none.
func TableNames(f model.Family) (names []string, err error) {
	err = withReader(func(r *reader) error {
		tables, err := r.tables()
		for _, t := range tables {
			if t.Family == nameOf(f) {
				names = append(names, t.Table)
			}
		}
		return err
	})
	return names, err
}

// Owned reports whether a table of a name belongs to a process that runs.
func Owned(name string) (owned bool, err error) {
	err = withReader(func(r *reader) error {
		tables, err := r.tables()
		owned = slices.ContainsFunc(tables, func(t table) bool { return t.Table == name && t.owned })
		return err
	})
	return owned, err
}

// FiltersEarly reports whether a chain of somebody's is before connection tracking, and so may drop packets of a
// family, or keep them from being tracked.
func (r *Ruleset) FiltersEarly(f model.Family) bool {
	foreign := map[model.Family]string{model.IPv4: "ip6", model.IPv6: "ip"}[f]
	return slices.ContainsFunc(r.Bases, func(b Base) bool {
		isFirst := (b.Hook == Prerouting || b.Hook == Output) && b.Priority <= atConntrack
		return isFirst && b.Place.Family != foreign && b.Place.Family != "bridge"
	})
}

// Untraceable names what may drop packets although no rule of nftables does. tables are those of iptables-legacy.
func Untraceable(f model.Family, tables []string) (list []string) {
	if len(tables) > 0 {
		program := map[model.Family]string{model.IPv4: "iptables-legacy", model.IPv6: "ip6tables-legacy"}[f]
		list = append(list, fmt.Sprintf("%s has rules in the tables %s. The kernel cannot trace them; "+
			"\"%[1]s -L -v -n\" counts packets.", program, strings.Join(tables, ", ")))
	}
	if b, err := os.ReadFile("/proc/thread-self/net/ip_vs"); err == nil && strings.Count(string(b), "\n") > 3 {
		list = append(list, "IPVS has virtual servers. The kernel cannot trace them; \"ipvsadm -Ln --stats\" counts packets.")
	}
	return list
}
