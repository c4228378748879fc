package others

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/internal/nfnl"
)

// IPTables are the tables that iptables-nft makes. The program refuses a whole family if one of them has a rule of
// nft's own; the kernel does not.
type IPTables struct{}

// iptablesTables are the names of the tables.
var iptablesTables = []string{"raw", "mangle", "nat", "filter", "security"}

// Chains returns the names of a family's chains. Without nf_tables there are none.
func (IPTables) Chains(f model.Family) (names []string, err error) {
	err = withReader(func(r *reader) error {
		chains, err := r.iptablesChains(f)
		for _, c := range chains {
			names = append(names, c.Chain)
		}
		return err
	})
	return names, err
}

// HasRules reports whether a chain of a family has a rule.
func (IPTables) HasRules(f model.Family, table, chain string) (has bool, err error) {
	err = withReader(func(r *reader) error {
		rules, err := list(r, unix.NFT_MSG_GETRULE, Place{nft.FamilyWord(f), table, chain}, decodeRule)
		has = len(rules) > 0
		return err
	})
	return has, err
}

// Remove removes the chains of a family for which theirs is true, table by table: first the rules that lead there, from
// whatever chain, with the contents of the chains, in one transaction; then the chains. An error names chains that
// stay, empty, because a map of another program leads there.
func (IPTables) Remove(f model.Family, theirs func(chain string) bool) error {
	return withReader(func(r *reader) error {
		chains, err := r.iptablesChains(f)
		if err != nil {
			return err
		}
		var errs []error
		for _, table := range iptablesTables {
			there := func(c chain) bool { return c.Table == table && theirs(c.Chain) }
			if slices.ContainsFunc(chains, there) {
				errs = append(errs, r.removeFrom(Place{Family: nft.FamilyWord(f), Table: table}, theirs))
			}
		}
		return errors.Join(errs...)
	})
}

func withReader(use func(*reader) error) error {
	r, err := openReader()
	if r == nil {
		return err
	}
	defer func() { _ = r.Close() }()
	return use(r)
}

func (r *reader) iptablesChains(f model.Family) ([]chain, error) {
	chains, err := list(r, unix.NFT_MSG_GETCHAIN, Place{Family: nft.FamilyWord(f)}, decodeChain)
	switch {
	case nfnl.IsMissing(err):
		return nil, nil
	case errors.Is(err, unix.EPERM):
		return nil, nfnl.ErrNotPermitted
	case err != nil:
		return nil, fmt.Errorf("list chains: %w", err)
	}
	return slices.DeleteFunc(chains, func(c chain) bool { return !slices.Contains(iptablesTables, c.Table) }), nil
}

// removeFrom removes chains of a table.
func (r *reader) removeFrom(t Place, theirs func(chain string) bool) (err error) {
	const tries = 3 // other programs may change the table meanwhile
	for range tries {
		if err = r.unhook(t, theirs); err == nil {
			err = r.deleteChains(t, theirs)
		}
		if !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EBUSY) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("table %s: %w", t.Table, err)
	}
	return nil
}

// unhook deletes the rules that lead to chains, and those in them.
func (r *reader) unhook(t Place, theirs func(chain string) bool) error {
	rules, err := list(r, unix.NFT_MSG_GETRULE, t, decodeRule)
	if err != nil {
		return fmt.Errorf("list rules: %w", err)
	}
	conn, table := &nftables.Conn{}, t.Library()
	flushed, changed := map[string]bool{}, false
	for _, rule := range rules {
		in := rule.Place.Chain
		c := &nftables.Chain{Table: table, Name: in}
		switch {
		case theirs(in) && flushed[in]:
			continue
		case theirs(in):
			flushed[in] = true
			conn.FlushChain(c)
		case rule.target != "" && theirs(rule.target):
			if err := conn.DelRule(&nftables.Rule{Table: table, Chain: c, Handle: rule.Handle}); err != nil {
				return err
			}
		default:
			continue
		}
		changed = true
	}
	if !changed {
		return nil
	}
	return conn.Flush()
}

// deleteChains deletes chains to which nothing leads.
func (r *reader) deleteChains(t Place, theirs func(chain string) bool) error {
	chains, err := list(r, unix.NFT_MSG_GETCHAIN, t, decodeChain)
	if err != nil {
		return fmt.Errorf("list chains: %w", err)
	}
	conn, table := &nftables.Conn{}, t.Library()
	var used []string
	for _, c := range chains {
		switch {
		case c.Table != t.Table || !theirs(c.Chain): // before Linux 5.19, those of all tables are listed
		case c.uses > 0:
			used = append(used, c.Chain)
		default:
			conn.DelChain(&nftables.Chain{Table: table, Name: c.Chain})
		}
	}
	if err := conn.Flush(); err != nil || len(used) == 0 {
		return err
	}
	return fmt.Errorf("a map of another program leads to chain %s", strings.Join(used, ", "))
}

// Library returns the table as google/nftables names it.
func (p Place) Library() *nftables.Table {
	return &nftables.Table{Family: nftables.TableFamily(familyNumber(p.Family)), Name: p.Table}
}
