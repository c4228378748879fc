package kernel

import (
	"errors"
	"fmt"
	"slices"
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
	return c.readTable(f, s, o, manyElements)
}

// readTable is read, with how many elements a map of endpoints may have to be read as a list.
func (c *conn) readTable(f model.Family, s *model.FamilySnapshot, o nft.Options, many int) (*nft.Table, error) {
	lib, err := c.lib.ListTableOfFamily(nft.TableName, tableFamily(f))
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read table %s: %w", nft.TableName, err)
	}
	t := &nft.Table{Family: f, Elements: map[string]*nft.Elements{}}
	if err := c.readSets(t, lib, many); err != nil {
		return nil, err
	}
	if err := c.readChains(t, lib, s, o); err != nil {
		return nil, err
	}
	return t, nil
}

// readSets reads the declarations of the sets, and their elements: those of maps of endpoints
// last, because the others tell how many there must be.
func (c *conn) readSets(t *nft.Table, lib *nftables.Table, many int) error {
	sets, err := c.lib.GetSets(lib)
	if err != nil {
		return fmt.Errorf("read sets: %w", err)
	}
	counts, err := c.counts(t.Family)
	if err != nil {
		return err
	}
	var endpoints []nft.Set
	for _, s := range sets {
		decl := nft.Set{
			Name: s.Name, Interval: s.Interval, Dynamic: s.Dynamic, Comment: s.Comment,
			Key: readTypes(t.Family, s.KeyType), Verdicts: s.IsMap && s.DataType.Name == nftables.TypeVerdict.Name,
		}
		if s.IsMap && !decl.Verdicts {
			decl.Data = readTypes(t.Family, s.DataType)
		}
		t.Sets = append(t.Sets, decl)
		switch {
		case decl.Dynamic: // what packets put there is theirs, see purge
		case slices.Contains(decl.Key, nft.Slot):
			endpoints = append(endpoints, decl)
		default:
			if err := c.listElements(t, decl, counts[decl.Name]); err != nil {
				return err
			}
		}
	}
	for _, decl := range endpoints {
		if err := c.readEndpoints(t, decl, counts[decl.Name], many); err != nil {
			return err
		}
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
