package others

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
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
	Drops    bool // it drops the packet, or may: its verdict is that of a map
	Rejects  bool // it answers with an error
	DNAT     bool // it replaces the destination
	Marks    bool // it sets the packet's mark, or the connection's
	Untracks bool // it keeps the packet from connection tracking

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
	conn   *nftables.Conn
	tables map[Place]*nftables.Table // by Place without a chain
	lines  map[Place]map[uint64]Line
	Bases  []Base
}

// ReadRuleset reads the base chains of all tables. Rules are read when they are asked for. Without nf_tables, there are
// none.
func ReadRuleset() (*Ruleset, error) {
	conn, tables, err := openTables()
	if conn == nil {
		return &Ruleset{}, err
	}
	r := &Ruleset{conn: conn, tables: map[Place]*nftables.Table{}, lines: map[Place]map[uint64]Line{}}
	for _, t := range tables {
		r.tables[Place{Family: familyName(byte(t.Family)), Table: t.Name}] = t
	}
	chains, err := conn.ListChains()
	if err != nil {
		r.Close()
		return nil, fmt.Errorf("list chains: %w", err)
	}
	for _, c := range chains {
		p := Place{Family: familyName(byte(c.Table.Family)), Table: c.Table.Name, Chain: c.Name}
		if c.Hooknum == nil || c.Priority == nil || p.IsOurs() {
			continue
		}
		for _, h := range hooks {
			if h.number == *c.Hooknum && p.Family != "netdev" && p.Family != "arp" {
				drops := c.Policy != nil && *c.Policy == nftables.ChainPolicyDrop
				r.Bases = append(r.Bases, Base{Place: p, Hook: h.hook, Priority: int32(*c.Priority), Drops: drops})
			}
		}
	}
	return r, nil
}

// Close ends the connection.
func (r *Ruleset) Close() {
	if r.conn != nil {
		_ = r.conn.CloseLasting()
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
	table := r.tables[Place{Family: p.Family, Table: p.Table}]
	if table == nil {
		return lines, nil
	}
	rules, err := r.conn.GetRules(table, &nftables.Chain{Name: p.Chain, Table: table})
	if err != nil {
		return nil, fmt.Errorf("list the rules of chain %s of table %s %s: %w", p.Chain, p.Family, p.Table, err)
	}
	for i, rule := range rules {
		l := Line{Place: p, Handle: rule.Handle, Position: i + 1}
		l.Comment, _ = userdata.GetString(rule.UserData, userdata.TypeComment)
		l.Text = text(rule.Exprs, func(set string) [][]byte { return r.elements(table, set) })
		for _, e := range rule.Exprs {
			l.note(e)
		}
		lines[rule.Handle] = l
	}
	return lines, nil
}

// note notes what an expression does to a packet.
func (l *Line) note(e expr.Any) {
	switch e := e.(type) {
	case *expr.Verdict:
		l.Drops = e.Kind == expr.VerdictDrop
		l.target = e.Chain
	case *expr.Lookup:
		l.Drops = l.Drops || e.IsDestRegSet && e.DestRegister == unix.NFT_REG_VERDICT
	case *expr.Reject:
		l.Rejects = true
	case *expr.Redir:
		l.DNAT = true
	case *expr.NAT:
		l.DNAT = l.DNAT || e.Type == expr.NATTypeDestNAT
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
		l.Untracks = l.Untracks || untracks(e)
	}
}

// elements returns the keys of an anonymous set.
func (r *Ruleset) elements(t *nftables.Table, name string) [][]byte {
	set, err := r.conn.GetSetByName(t, name)
	if err != nil || set.Interval || set.IsMap {
		return nil
	}
	elements, err := r.conn.GetSetElements(set)
	if err != nil {
		return nil
	}
	var keys [][]byte
	for _, e := range elements {
		keys = append(keys, e.Key)
	}
	return keys
}

// TableNames returns the names of all tables of a family. Without nf_tables there are none.
func TableNames(f model.Family) (names []string, err error) {
	conn, tables, err := openTables()
	if conn == nil {
		return nil, err
	}
	families := [...]nftables.TableFamily{model.IPv4: nftables.TableFamilyIPv4, model.IPv6: nftables.TableFamilyIPv6}
	for _, t := range tables {
		if t.Family == families[f] {
			names = append(names, t.Name)
		}
	}
	return names, conn.CloseLasting()
}

// openTables lists all tables. Without nf_tables, there is no connection either.
func openTables() (conn *nftables.Conn, tables []*nftables.Table, err error) {
	if conn, err = nftables.New(nftables.AsLasting()); err == nil {
		if tables, err = conn.ListTables(); err == nil {
			return conn, tables, nil
		}
		_ = conn.CloseLasting()
	}
	switch {
	case errors.Is(err, unix.EPROTONOSUPPORT), nfnl.IsMissing(err):
		return nil, nil, nil
	case errors.Is(err, unix.EPERM):
		return nil, nil, nfnl.ErrNotPermitted
	}
	return nil, nil, fmt.Errorf("list tables: %w", err)
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
	return append(list, "Programs of eBPF, such as those of Cilium or Calico, drop packets without a trace here.")
}
