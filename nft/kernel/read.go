package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
)

// read returns what our table of a family holds, or nil if there is none. A rule is
// recognised by being encoded as one that we would write with the same settings and
// service ports.
func (c *conn) read(f model.Family, s *model.FamilySnapshot, o nft.Options) (*nft.Table, error) {
	lib, err := c.lib.ListTableOfFamily(nft.TableName, tableFamily(f))
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read table %s: %w", nft.TableName, err)
	}
	t := &nft.Table{Family: f, Elements: map[string]map[string]nft.Element{}}
	if err := c.readSets(t, lib); err != nil {
		return nil, err
	}
	if err := c.readChains(t, lib, s, o); err != nil {
		return nil, err
	}
	return t, nil
}

func (c *conn) readSets(t *nft.Table, lib *nftables.Table) error {
	sets, err := c.lib.GetSets(lib)
	if err != nil {
		return fmt.Errorf("read sets: %w", err)
	}
	for _, s := range sets {
		decl := nft.Set{
			Name: s.Name, Interval: s.Interval, Dynamic: s.Dynamic, Comment: s.Comment,
			Key: readTypes(t.Family, s.KeyType), Verdicts: s.IsMap && s.DataType.Name == nftables.TypeVerdict.Name,
		}
		if s.IsMap && !decl.Verdicts {
			decl.Data = readTypes(t.Family, s.DataType)
		}
		t.Sets = append(t.Sets, decl)
		if decl.Dynamic {
			continue // what packets put there is theirs, see settle
		}
		elements, err := c.lib.GetSetElements(s)
		if err != nil {
			return fmt.Errorf("read elements of %s: %w", s.Name, err)
		}
		t.Elements[s.Name] = readElements(decl, elements)
	}
	return nil
}

// readTypes translates the types we use. Any other makes the set one that is not ours.
func readTypes(f model.Family, d nftables.SetDatatype) []nft.Type {
	addr := nftables.TypeIPAddr.Name
	if f == model.IPv6 {
		addr = nftables.TypeIP6Addr.Name
	}
	types := map[string]nft.Type{
		addr: nft.Addr, nftables.TypeInetProto.Name: nft.Proto,
		nftables.TypeInetService.Name: nft.Service, nftables.TypeInteger.Name: nft.Slot,
	}
	var list []nft.Type
	for name := range strings.SplitSeq(d.Name, " . ") {
		t, ok := types[name]
		if !ok {
			return nil
		}
		list = append(list, t)
	}
	return list
}

func readElements(s nft.Set, elements []nftables.SetElement) map[string]nft.Element {
	if s.Interval && len(s.Key) == 1 {
		return readRanges(elements)
	}
	all := make(map[string]nft.Element, len(elements))
	for i := range elements {
		e := nft.Element{Key: string(elements[i].Key), End: string(elements[i].KeyEnd), Comment: elements[i].Comment}
		switch {
		case s.Verdicts:
			e.Verdict = readVerdict(elements[i].Val)
		case s.Data != nil:
			e.Data = string(elements[i].Val)
		}
		all[e.Key] = e
	}
	return all
}

// readRanges joins the beginnings and ends of ranges. The kernel lists them from the
// highest to the lowest, but does not promise to.
func readRanges(elements []nftables.SetElement) map[string]nft.Element {
	var starts, ends []string
	for _, e := range elements {
		if e.IntervalEnd {
			ends = append(ends, string(e.Key))
		} else {
			starts = append(starts, string(e.Key))
		}
	}
	all := make(map[string]nft.Element, len(starts))
	for _, start := range starts {
		e := nft.Element{Key: start}
		for _, end := range ends {
			if end > start && (e.End == "" || end < e.End) {
				e.End = end
			}
		}
		all[start] = e
	}
	return all
}

// readVerdict reads the data of an element of a verdict map, which google/nftables
// leaves as the attributes it is (NFTA_DATA_VERDICT).
func readVerdict(data []byte) nft.Verdict {
	kinds := map[expr.VerdictKind]nft.VerdictKind{
		expr.VerdictDrop: nft.DropPacket, expr.VerdictReturn: nft.Return,
		expr.VerdictJump: nft.Jump, expr.VerdictGoto: nft.Goto,
	}
	var v nft.Verdict
	ad, err := netlink.NewAttributeDecoder(data)
	if err != nil {
		return v
	}
	ad.ByteOrder = binary.BigEndian
	for ad.Next() {
		switch ad.Type() {
		case unix.NFTA_VERDICT_CODE:
			v.Kind = kinds[expr.VerdictKind(int32(ad.Uint32()))]
		case unix.NFTA_VERDICT_CHAIN:
			v.Chain = ad.String()
		}
	}
	return v
}

func (c *conn) readChains(t *nft.Table, lib *nftables.Table, s *model.FamilySnapshot, o nft.Options) error {
	// google/nftables lists the chains of all tables of a family; only ours are looked at.
	chains, err := c.lib.ListChainsOfTableFamily(lib.Family)
	if err != nil {
		return fmt.Errorf("read chains: %w", err)
	}
	var names []string
	for _, chain := range chains {
		if chain.Table.Name == nft.TableName {
			names = append(names, chain.Name)
		}
	}
	known, err := fingerprints(t.Family, o.LayoutChains(s, names))
	if err != nil {
		return err
	}
	for _, chain := range chains {
		if chain.Table.Name != nft.TableName {
			continue
		}
		made := nft.Chain{Name: chain.Name, Filter: chain.Type == nftables.ChainTypeFilter}
		if chain.Hooknum != nil && chain.Priority != nil {
			made.Hook, made.Prio = readHook(*chain.Hooknum), int32(*chain.Priority)
		}
		if made.Rules, err = c.readRules(t.Family, lib, chain, known[chain.Name]); err != nil {
			return err
		}
		t.Chains = append(t.Chains, made)
	}
	return nil
}

// fingerprints returns the rules of chains by what they are encoded as.
func fingerprints(f model.Family, chains []nft.Chain) (map[string]map[string]nft.Rule, error) {
	known := map[string]map[string]nft.Rule{}
	for _, chain := range chains {
		rules := map[string]nft.Rule{}
		for _, r := range chain.Rules {
			exprs, err := encodeRule(f, r)
			if err != nil {
				return nil, err
			}
			code, err := fingerprint(f, exprs)
			if err != nil {
				return nil, err
			}
			rules[code] = r
		}
		known[chain.Name] = rules
	}
	return known, nil
}

func readHook(n nftables.ChainHook) nft.Hook {
	for _, h := range []nft.Hook{nft.Prerouting, nft.Output, nft.Postrouting, nft.Input, nft.Forward} {
		if *hookNumber(h) == n {
			return h
		}
	}
	return nft.NoHook
}

func (c *conn) readRules(f model.Family, t *nftables.Table, chain *nftables.Chain, known map[string]nft.Rule) ([]nft.Rule, error) {
	list, err := c.lib.GetRules(t, chain)
	if err != nil {
		return nil, fmt.Errorf("read rules of %s: %w", chain.Name, err)
	}
	rules := make([]nft.Rule, 0, len(list))
	for _, r := range list {
		code, err := fingerprint(f, r.Exprs)
		rule, ok := known[code]
		if err != nil || !ok {
			rule = nft.Rule{nft.Foreign{What: fmt.Sprintf("handle %d", r.Handle)}}
		}
		rules = append(rules, rule)
	}
	return rules, nil
}

// fingerprint is the same for a rule that we would write and for the same rule as the
// kernel gives it back.
func fingerprint(f model.Family, exprs []expr.Any) (string, error) {
	var b []byte
	for _, e := range exprs {
		data, err := expr.Marshal(byte(tableFamily(f)), e)
		if err != nil {
			return "", fmt.Errorf("encode %T: %w", e, err)
		}
		b = append(b, data...)
	}
	return string(b), nil
}

// isUnreadable reports whether an error comes from what was read rather than from
// reading it: then somebody else wrote into our table what we would not.
func isUnreadable(err error) bool {
	var op *netlink.OpError
	return err != nil && !errors.As(err, &op)
}
