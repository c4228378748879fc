package others

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

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
	Text     string // see Ruleset.Text; "": nobody has asked for it
	Decides  bool   // its last expression is a verdict
	Drops    bool   // it drops the packet, or may: its verdict is that of a map
	Rejects  bool   // it answers with an error
	DNAT     bool   // it replaces the destination
	Marks    bool   // it sets the packet's mark, or the connection's
	Untracks bool   // it keeps the packet from connection tracking
	// To is the address to which it translates the destination; invalid: there is none, or several.
	To netip.Addr

	target  string // the chain to which it leads
	comment string // of iptables-nft, which nft does not list
}

// Ruleset has the base chains of all tables. Rules are read when they are asked for.
type Ruleset struct {
	Bases []Base
	texts map[Place]map[uint64]string // as nft lists them
}

// ReadRuleset reads the base chains. Without nf_tables, there are none.
func ReadRuleset() (*Ruleset, error) {
	r := &Ruleset{texts: map[Place]map[uint64]string{}}
	chains, err := list(unix.NFT_MSG_GETCHAIN, Place{}, decodeChain)
	for _, c := range chains {
		if c.Hook != "" && !c.Place.IsTracers() && c.Place.Family != "netdev" && c.Place.Family != "arp" {
			r.Bases = append(r.Bases, c.Base)
		}
	}
	return r, err
}

// Rule returns a rule by its handle. If it is not there any more, or cannot be read, only its place is known.
func Rule(p Place, handle uint64) Line {
	lines, _ := read(p)
	if i := slices.IndexFunc(lines, func(l Line) bool { return l.Handle == handle }); i >= 0 {
		return lines[i]
	}
	return Line{Place: p, Handle: handle}
}

// Reached returns the rules of a base chain and of the chains to which these lead. Chains for which
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
		rules, err := read(p)
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

func read(p Place) ([]Line, error) {
	rules, err := list(unix.NFT_MSG_GETRULE, p, decodeRule)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", p, err)
	}
	for i := range rules {
		rules[i].Position = i + 1
	}
	return rules, nil
}

func decodeRule(family byte, b []byte) Line {
	l := Line{
		Place:  Place{FamilyName(family), nfnl.String(b, unix.NFTA_RULE_TABLE), nfnl.String(b, unix.NFTA_RULE_CHAIN)},
		Handle: nfnl.Uint64(nfnl.First(b, unix.NFTA_RULE_HANDLE)),
	}
	constants := map[uint32][]byte{}
	for e := range nfnl.Attributes(nfnl.First(b, unix.NFTA_RULE_EXPRESSIONS), unix.NFTA_LIST_ELEM) {
		l.note(nfnl.String(e, unix.NFTA_EXPR_NAME), nfnl.First(e, unix.NFTA_EXPR_DATA), constants)
	}
	l.To = l.To.Unmap()
	return l
}

// note notes what an expression does to a packet. constants are those that expressions before it have loaded.
func (l *Line) note(name string, data []byte, constants map[uint32][]byte) {
	has := func(attr uint16) bool { return nfnl.First(data, attr) != nil }
	number := func(attr uint16) uint32 { return nfnl.Uint32(nfnl.First(data, attr)) }
	switch name {
	case "immediate":
		value := nfnl.First(data, unix.NFTA_IMMEDIATE_DATA)
		constants[number(unix.NFTA_IMMEDIATE_DREG)] = nfnl.First(value, unix.NFTA_DATA_VALUE)
		if verdict := nfnl.First(value, unix.NFTA_DATA_VERDICT); verdict != nil {
			l.Decides, l.Drops = true, nfnl.Uint32(nfnl.First(verdict, unix.NFTA_VERDICT_CODE)) == drop
			l.target = nfnl.String(verdict, unix.NFTA_VERDICT_CHAIN)
		}
	case "lookup":
		l.Drops = l.Drops || has(unix.NFTA_LOOKUP_DREG) && number(unix.NFTA_LOOKUP_DREG) == unix.NFT_REG_VERDICT
	case "reject":
		l.Rejects = true
	case "redir":
		l.DNAT = true
	case "nat":
		if number(unix.NFTA_NAT_TYPE) == unix.NFT_NAT_DNAT {
			l.DNAT = true
			l.To, _ = netip.AddrFromSlice(constants[number(unix.NFTA_NAT_REG_ADDR_MIN)])
		}
	case "notrack":
		l.Untracks = true
	case "meta":
		l.Marks = l.Marks || has(unix.NFTA_META_SREG) && number(unix.NFTA_META_KEY) == unix.NFT_META_MARK
	case "ct":
		l.Marks = l.Marks || has(unix.NFTA_CT_SREG) && number(unix.NFTA_CT_KEY) == unix.NFT_CT_MARK
	case "match":
		if nfnl.String(data, unix.NFTA_MATCH_NAME) == "comment" {
			comment, _, _ := bytes.Cut(nfnl.First(data, unix.NFTA_MATCH_INFO), []byte{0})
			l.comment = string(comment)
		}
	case "target":
		name, info := nfnl.String(data, unix.NFTA_TARGET_NAME), nfnl.First(data, unix.NFTA_TARGET_INFO)
		l.noteTarget(name, number(unix.NFTA_TARGET_REV), info)
	}
}

func (l *Line) noteTarget(name string, revision uint32, info []byte) {
	const toRange, notrack = 2, 1 << 0 // the revision with NatRange2; XT_CT_NOTRACK in struct xt_ct_target_info
	switch name {
	case "REJECT":
		l.Rejects = true
	case "DNAT", "REDIRECT":
		l.DNAT = true
		if name == "DNAT" && revision == toRange {
			to, _ := xt.Unmarshal(name, xt.TableFamily(familyNumber(l.Place.Family)), revision, info)
			if to, ok := to.(*xt.NatRange2); ok {
				l.To, _ = netip.AddrFromSlice(to.MinIP)
			}
		}
	case "MARK", "CONNMARK":
		l.Marks = true
	case "NOTRACK":
		l.Untracks = true
	case "CT":
		l.Untracks = len(info) >= 2 && binary.NativeEndian.Uint16(info)&notrack != 0
	}
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
