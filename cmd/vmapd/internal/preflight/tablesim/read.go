package tablesim

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
)

// ReadTable reads a table of another program, to run packets through it. Without such a table, or
// without nf_tables, it returns nil. It changes nothing.
func ReadTable(f model.Family, name string) (*Table, error) {
	c, err := nftables.New()
	if err != nil {
		return nil, fmt.Errorf("open netlink connection: %w", err)
	}
	family := nftables.TableFamilyIPv4
	if f == model.IPv6 {
		family = nftables.TableFamilyIPv6
	}
	theirs, err := c.ListTableOfFamily(name, family)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EPROTONOSUPPORT) || err == nil && theirs == nil {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read table %s: %w", name, err)
	}
	r := &foreignReader{conn: c, theirs: theirs, table: NewTable(f, name), types: map[string][]nftables.SetDatatype{}}
	if err := errors.Join(r.readSets(), r.readChains(family)); err != nil {
		return nil, fmt.Errorf("read table %s: %w", name, err)
	}
	return r.table, r.table.Check()
}

// foreignReader reads one table.
type foreignReader struct {
	conn   *nftables.Conn
	theirs *nftables.Table
	table  *Table
	types  map[string][]nftables.SetDatatype // of the keys of sets
}

func (r *foreignReader) readSets() error {
	sets, err := r.conn.GetSets(r.theirs)
	if err != nil {
		return fmt.Errorf("list sets: %w", err)
	}
	for _, s := range sets {
		elements, err := r.conn.GetSetElements(s)
		if err != nil {
			return fmt.Errorf("set %s: list elements: %w", s.Name, err)
		}
		types := []nftables.SetDatatype{s.KeyType}
		if concat := nftables.ConcatSetTypeElements(s.KeyType); len(concat) > 1 {
			types = concat
		}
		r.types[s.Name] = types
		to := &Set{Name: s.Name}
		r.table.Sets[s.Name] = to
		if s.Interval && len(types) == 1 {
			elements = closeIntervals(elements)
		}
		for _, e := range elements {
			one, err := r.element(s, types, e)
			if err != nil {
				return fmt.Errorf("set %s: %w", s.Name, err)
			}
			to.Elements = append(to.Elements, one)
		}
	}
	return nil
}

// closeIntervals gives each interval its last key. The kernel lists the end of an interval as an element
// of its own, which is the first key behind it.
func closeIntervals(list []nftables.SetElement) (closed []nftables.SetElement) {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b nftables.SetElement) int { return bytes.Compare(a.Key, b.Key) })
	for i, e := range list {
		if e.IntervalEnd {
			continue
		}
		e.KeyEnd = bytes.Repeat([]byte{0xff}, len(e.Key))
		if i+1 < len(list) {
			e.KeyEnd = before(list[i+1].Key)
		}
		closed = append(closed, e)
	}
	return closed
}

// before returns a key minus one.
func before(key []byte) []byte {
	b := slices.Clone(key)
	for i := len(b) - 1; i >= 0; i-- {
		b[i]--
		if b[i] != 0xff {
			break
		}
	}
	return b
}

// element converts an element. Components of concatenations are padded to registers.
func (r *foreignReader) element(s *nftables.Set, types []nftables.SetDatatype, e nftables.SetElement) (Element, error) {
	one := Element{Comment: e.Comment}
	var err error
	if one.From, err = components(types, e.Key); err == nil && len(e.KeyEnd) > 0 {
		one.To, err = components(types, e.KeyEnd)
	}
	switch {
	case err != nil:
		return one, err
	case s.IsMap && s.DataType.Name == nftables.TypeVerdict.Name: // nested attributes, which the library passes on
		one.Verdict, err = verdictOf(e.Val)
	case s.IsMap && len(e.Val) > 0:
		one.Data, err = destination(r.table.Family, e.Val)
	}
	return one, err
}

func verdictOf(attributes []byte) (Verdict, error) {
	ad, err := netlink.NewAttributeDecoder(attributes)
	if err != nil {
		return Verdict{}, err
	}
	ad.ByteOrder = binary.BigEndian
	var v expr.Verdict
	for ad.Next() {
		switch ad.Type() {
		case unix.NFTA_VERDICT_CODE:
			v.Kind = expr.VerdictKind(ad.Int32())
		case unix.NFTA_VERDICT_CHAIN:
			v.Chain = ad.String()
		}
	}
	if ad.Err() != nil {
		return Verdict{}, ad.Err()
	}
	return foreignVerdict(&v)
}

// components cuts a key.
func components(types []nftables.SetDatatype, key []byte) (list [][]byte, err error) {
	for _, t := range types {
		n := int(t.Bytes)
		padded := (n + 3) / 4 * 4
		if len(types) == 1 {
			padded = n
		}
		if n == 0 || len(key) < padded {
			return nil, fmt.Errorf("a key has %d bytes for %s", len(key), t.Name)
		}
		list = append(list, order(t.Name, key[:n]))
		key = key[padded:]
	}
	return list, nil
}

// order returns a value in the network's byte order. Numbers that are not in packets have the machine's.
func order(name string, b []byte) []byte {
	b = slices.Clone(b)
	switch name {
	case "mark", "ct_state", "ct_status", "fib_addrtype", "integer":
		if len(b) == 4 {
			return number(nativeUint32(b))
		}
	case "ifname":
		b = bytes.TrimRight(b, "\x00")
	}
	return b
}

// destination reads an address and a port.
func destination(f model.Family, b []byte) (netip.AddrPort, error) {
	n := f.Unspecified().BitLen() / 8 // a multiple of a register
	if len(b) < n+2 {
		return netip.AddrPort{}, fmt.Errorf("%d bytes in place of an address and a port", len(b))
	}
	a, _ := netip.AddrFromSlice(b[:n])
	return netip.AddrPortFrom(a, uint16(b[n])<<8|uint16(b[n+1])), nil
}

func foreignVerdict(v *expr.Verdict) (Verdict, error) {
	kinds := map[expr.VerdictKind]VerdictKind{
		expr.VerdictAccept: Accept, expr.VerdictDrop: Drop, expr.VerdictReturn: Return,
		expr.VerdictJump: Jump, expr.VerdictGoto: Goto,
	}
	kind, ok := kinds[v.Kind]
	if !ok {
		return Verdict{}, fmt.Errorf("unknown verdict %d", v.Kind)
	}
	return Verdict{Kind: kind, Chain: v.Chain}, nil
}

func (r *foreignReader) readChains(family nftables.TableFamily) error {
	chains, err := r.conn.ListChainsOfTableFamily(family)
	if err != nil {
		return fmt.Errorf("list chains: %w", err)
	}
	hooks := map[nftables.ChainHook]string{
		*nftables.ChainHookPrerouting: "prerouting", *nftables.ChainHookInput: "input", *nftables.ChainHookForward: "forward",
		*nftables.ChainHookOutput: "output", *nftables.ChainHookPostrouting: "postrouting",
	}
	for _, c := range chains {
		if c.Table.Name != r.theirs.Name {
			continue
		}
		to := &Chain{Name: c.Name, NAT: c.Type == nftables.ChainTypeNAT}
		r.table.Chains[c.Name] = to
		if c.Hooknum != nil {
			to.Hook = hooks[*c.Hooknum]
			to.Priority = int(*c.Priority)
			to.Drop = c.Policy != nil && *c.Policy == nftables.ChainPolicyDrop
		}
		rules, err := r.conn.GetRules(r.theirs, c)
		if err != nil {
			return fmt.Errorf("chain %s: list rules: %w", c.Name, err)
		}
		for i, rule := range rules {
			x := registers{reader: r}
			for _, e := range rule.Exprs {
				if err := x.add(e); err != nil {
					return fmt.Errorf("chain %s: rule %d: %w", c.Name, i+1, err)
				}
			}
			to.Rules = append(to.Rules, x.rule)
		}
	}
	return nil
}
