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
)

// IPTables are the tables that iptables-nft makes. The program refuses a whole family if one of them has a rule of
// nft's own; the kernel does not.
type IPTables struct{}

var iptablesTables = []string{"raw", "mangle", "nat", "filter", "security"}

// Chains returns the names of a family's chains. Without nf_tables there are none.
func (IPTables) Chains(f model.Family) (names []string, err error) {
	chains, err := list(unix.NFT_MSG_GETCHAIN, Place{Family: nft.FamilyWord(f)}, decodeChain)
	for _, c := range chains {
		if slices.Contains(iptablesTables, c.Place.Table) {
			names = append(names, c.Place.Chain)
		}
	}
	return names, err
}

// HasRules reports whether a chain of a family has a rule.
func (IPTables) HasRules(f model.Family, table, chain string) (bool, error) {
	rules, err := list(unix.NFT_MSG_GETRULE, Place{nft.FamilyWord(f), table, chain}, decodeRule)
	return len(rules) > 0, err
}

// Remove removes the chains of a family for which theirs is true, and the rules that lead there, from whatever chain:
// those of a table in one transaction. An error names chains that stay, empty, because a map of another program leads
// there.
func (IPTables) Remove(f model.Family, theirs func(chain string) bool) error {
	chains, err := list(unix.NFT_MSG_GETCHAIN, Place{Family: nft.FamilyWord(f)}, decodeChain)
	errs := []error{err}
	for _, table := range iptablesTables {
		in := slices.DeleteFunc(slices.Clone(chains), func(c chain) bool {
			return c.Place.Table != table || !theirs(c.Place.Chain)
		})
		if len(in) == 0 {
			continue
		}
		if err := remove(in, theirs); err != nil {
			errs = append(errs, fmt.Errorf("table %s: %w", table, err))
		}
	}
	return errors.Join(errs...)
}

func remove(chains []chain, theirs func(chain string) bool) error {
	in := Place{Family: chains[0].Place.Family, Table: chains[0].Place.Table}
	rules, err := list(unix.NFT_MSG_GETRULE, in, decodeRule)
	if err != nil {
		return err
	}
	conn, table := &nftables.Conn{}, in.Library()
	uses := map[string]uint32{} // of chains, by rules in them and by those that lead there
	for _, r := range rules {
		uses[r.Place.Chain]++
		uses[r.target]++
		if theirs(r.target) && !theirs(r.Place.Chain) {
			c := &nftables.Chain{Table: table, Name: r.Place.Chain}
			if err := conn.DelRule(&nftables.Rule{Table: table, Chain: c, Handle: r.Handle}); err != nil {
				return err
			}
		}
	}
	for _, c := range chains {
		conn.FlushChain(&nftables.Chain{Table: table, Name: c.Place.Chain})
	}
	var used []string
	for _, c := range chains {
		if c.uses > uses[c.Place.Chain] {
			used = append(used, c.Place.Chain)
		} else {
			conn.DelChain(&nftables.Chain{Table: table, Name: c.Place.Chain})
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
