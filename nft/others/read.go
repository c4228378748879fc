package others

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/nft/internal/nfnl"
)

// reader lists the objects of all programs. The lists of google/nftables are not for these: a rule that it can't decode
// makes it panic (see comment, and nfnl.Unmarshal), or return none of the chain's rules, and it leaves out expressions
// that it does not know.
type reader struct{ *netlink.Conn }

// openReader returns nil without nf_tables.
func openReader() (*reader, error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	switch {
	case errors.Is(err, unix.EPROTONOSUPPORT):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("open netlink connection: %w", err)
	}
	return &reader{c}, nil
}

// genmsg is the size of struct nfgenmsg, which begins with the family.
const genmsg = 4

// list returns what decode makes of the objects that a message lists. It starts again if the objects changed meanwhile,
// since the kernel may have left some out.
func list[T any](r *reader, kind uint16, of Place, decode func(family byte, attrs []byte) T) (all []T, err error) {
	m := netlink.Message{
		Header: netlink.Header{
			Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | kind), Flags: netlink.Request | netlink.Dump,
		},
		Data: []byte{familyNumber(of.Family), unix.NFNETLINK_V0, 0, 0},
	}
	const table, chainOrSet = unix.NFTA_RULE_TABLE, unix.NFTA_RULE_CHAIN // the same numbers with sets and elements
	attrs := netlink.NewAttributeEncoder()
	for kind, name := range map[uint16]string{table: of.Table, chainOrSet: of.Chain} {
		if name != "" {
			attrs.String(kind, name)
		}
	}
	names, err := attrs.Encode()
	if err != nil {
		return nil, err
	}
	m.Data = append(m.Data, names...)
	const tries = 5
	for range tries {
		answer, err := r.Execute(m)
		if err != nil {
			return nil, err
		}
		interrupted := false
		all = all[:0]
		for _, m := range answer {
			interrupted = interrupted || m.Header.Flags&netlink.DumpInterrupted != 0
			if len(m.Data) >= genmsg {
				all = append(all, decode(m.Data[0], m.Data[genmsg:]))
			}
		}
		if !interrupted {
			return all, nil
		}
	}
	return nil, fmt.Errorf("rules changed meanwhile, in each of %d tries: %w", tries, unix.EINTR)
}

func text(b []byte, kind uint16) string { return string(nfnl.Text(nfnl.First(b, kind))) }

// table is one of anybody's.
type table struct {
	Place
	owned bool // it ends with the process that made it
}

func decodeTable(family byte, b []byte) table {
	const ownedFlag = 2 // NFT_TABLE_F_OWNER
	name, flags := text(b, unix.NFTA_TABLE_NAME), nfnl.Uint32(nfnl.First(b, unix.NFTA_TABLE_FLAGS))
	return table{Place{Family: familyName(family), Table: name}, flags&ownedFlag != 0}
}

// tables lists all tables; without nf_tables, none.
func (r *reader) tables() (all []table, err error) {
	all, err = list(r, unix.NFT_MSG_GETTABLE, Place{}, decodeTable)
	switch {
	case nfnl.IsMissing(err):
		return nil, nil
	case errors.Is(err, unix.EPERM):
		return nil, nfnl.ErrNotPermitted
	case err != nil:
		return nil, fmt.Errorf("list tables: %w", err)
	}
	return all, nil
}

// chain is one of anybody's.
type chain struct {
	Place
	base     bool // the kernel calls it
	hook     uint32
	priority int32
	drops    bool   // by its policy
	uses     uint32 // its rules, and the rules and elements that lead to it
}

func decodeChain(family byte, b []byte) chain {
	c := chain{Place: Place{familyName(family), text(b, unix.NFTA_CHAIN_TABLE), text(b, unix.NFTA_CHAIN_NAME)}}
	hook := nfnl.First(b, unix.NFTA_CHAIN_HOOK)
	c.base = hook != nil
	c.hook = nfnl.Uint32(nfnl.First(hook, unix.NFTA_HOOK_HOOKNUM))
	c.priority = int32(nfnl.Uint32(nfnl.First(hook, unix.NFTA_HOOK_PRIORITY)))
	c.uses = nfnl.Uint32(nfnl.First(b, unix.NFTA_CHAIN_USE))
	const drop = 0 // NF_DROP
	policy := nfnl.First(b, unix.NFTA_CHAIN_POLICY)
	c.drops = policy != nil && nfnl.Uint32(policy) == drop
	return c
}

// rule is one of anybody's.
type rule struct {
	chain   string
	handle  uint64
	comment string
	exprs   []any // of package expr, or unread
}

func decodeRule(family byte, b []byte) rule {
	r := rule{
		chain: text(b, unix.NFTA_RULE_CHAIN), handle: nfnl.Uint64(nfnl.First(b, unix.NFTA_RULE_HANDLE)),
		comment: comment(nfnl.First(b, unix.NFTA_RULE_USERDATA)),
	}
	exprs := nfnl.First(b, unix.NFTA_RULE_EXPRESSIONS)
	for e := range nfnl.Attributes(exprs, unix.NFTA_LIST_ELEM) {
		r.exprs = append(r.exprs, unmarshal(family, text(e, unix.NFTA_EXPR_NAME), nfnl.First(e, unix.NFTA_EXPR_DATA)))
	}
	if !nfnl.IsWhole(b) || !nfnl.IsWhole(exprs) {
		r.exprs = append(r.exprs, unread("rest"))
	}
	return r
}

// comment returns the comment in a rule's user data, as nft and iptables-nft write it. Other programs write what they
// like: that is returned as text, or in hexadecimal.
func comment(data []byte) string {
	value, isData := nfnl.Userdata(data, byte(userdata.TypeComment))
	if isData {
		return string(nfnl.Text(value))
	}
	plain := string(nfnl.Text(data))
	if utf8.ValidString(plain) && !strings.ContainsFunc(plain, func(c rune) bool { return !strconv.IsPrint(c) }) {
		return plain
	}
	return hexadecimal(data)
}

// unread is the name of an expression that can't be decoded.
type unread string

// unmarshal decodes an expression.
func unmarshal(family byte, name string, data []byte) any {
	e := nfnl.NewExpr(name)
	if e == nil {
		return unread(name)
	}
	if err := nfnl.Unmarshal(family, data, e); err != nil && name != "match" && name != "target" {
		return unread(name) // what an extension of iptables does is in its name, too
	}
	if i, ok := e.(*expr.Immediate); ok && i.Register == unix.NFT_REG_VERDICT {
		verdict := nfnl.First(nfnl.First(data, unix.NFTA_IMMEDIATE_DATA), unix.NFTA_DATA_VERDICT)
		v := &expr.Verdict{Kind: expr.VerdictKind(int32(nfnl.Uint32(nfnl.First(verdict, unix.NFTA_VERDICT_CODE))))}
		v.Chain = text(verdict, unix.NFTA_VERDICT_CHAIN)
		if nfnl.First(verdict, unix.NFTA_VERDICT_CODE) == nil {
			return unread(name)
		}
		return v
	}
	return e
}

// set says what a set is for.
type set struct {
	name            string
	interval, isMap bool
}

func decodeSet(_ byte, b []byte) set {
	flags := nfnl.Uint32(nfnl.First(b, unix.NFTA_SET_FLAGS))
	return set{text(b, unix.NFTA_SET_NAME), flags&unix.NFT_SET_INTERVAL != 0, flags&unix.NFT_SET_MAP != 0}
}

// decodeKeys returns the keys of some elements of a set.
func decodeKeys(_ byte, b []byte) (keys [][]byte) {
	for e := range nfnl.Elements(b) {
		keys = append(keys, nfnl.Value(e, unix.NFTA_SET_ELEM_KEY))
	}
	return keys
}

func (r *reader) keys(t Place, set string) ([][]byte, error) {
	parts, err := list(r, unix.NFT_MSG_GETSETELEM, Place{t.Family, t.Table, set}, decodeKeys)
	return slices.Concat(parts...), err
}
