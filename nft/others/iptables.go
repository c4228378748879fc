package others

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/internal/nfnl"
)

// iptablesTables are the tables that iptables-nft makes, and reads.
var iptablesTables = []string{"raw", "mangle", "nat", "filter", "security"}

func tableFamily(f model.Family) nftables.TableFamily { return fieldsOf(f).table }

// IPTablesChains is [Lister.IPTablesChains] over a connection of its own.
func IPTablesChains(f model.Family) ([]string, error) {
	var l Lister
	defer l.Close()
	return l.IPTablesChains(f)
}

// IPTablesChains returns the names of the chains in the tables of iptables-nft, those of each
// table in their order there. Without nf_tables there are none.
func (l *Lister) IPTablesChains(f model.Family) (names []string, err error) {
	chains := map[string][]string{}
	err = l.list(byte(tableFamily(f)), unix.NFT_MSG_GETCHAIN, nil, func(attrs []byte) bool {
		if table := nfnl.String(attrs, unix.NFTA_CHAIN_TABLE); slices.Contains(iptablesTables, table) {
			chains[table] = append(chains[table], nfnl.String(attrs, unix.NFTA_CHAIN_NAME))
		}
		return true
	})
	if err != nil {
		return nil, fmt.Errorf("list chains: %w", err)
	}
	for _, table := range iptablesTables {
		names = append(names, chains[table]...)
	}
	return names, nil
}

// connected calls use with a connection of its own. Without nf_tables, there is no error.
func connected(use func(*nftables.Conn) error) error {
	c, err := nftables.New(nftables.AsLasting())
	if err != nil {
		return listError(err)
	}
	defer func() { _ = c.CloseLasting() }()
	return use(c)
}

// IPTablesRules returns the number of rules of a chain in the table nat of iptables-nft.
func IPTablesRules(f model.Family, chain string) (n int, err error) {
	err = connected(func(c *nftables.Conn) error {
		nat := &nftables.Table{Family: tableFamily(f), Name: "nat"}
		rules, err := c.GetRules(nat, &nftables.Chain{Table: nat, Name: chain})
		n = len(rules)
		return listError(err)
	})
	return n, err
}

// RemoveIPTablesChains deletes chains from the tables of iptables-nft, and the rules of other
// chains that lead there: all of a family's or, after an error, none.
func RemoveIPTablesChains(f model.Family, theirs func(chain string) bool) (err error) {
	r := remover{family: f, theirs: theirs}
	// Other programs may change these tables at any time. The kernel refuses a batch that was made from an older
	// generation of rules; but where they change all the time, the last batch is for any generation.
	const tries = 3
	for try := range tries {
		if err = r.remove(try == tries-1); err == nil {
			return nil
		}
	}
	return fmt.Errorf("delete %v chains of iptables-nft: %w", f, err)
}

// remover removes chains of a family.
type remover struct {
	family model.Family
	theirs func(chain string) bool
}

func (r remover) isTheirs(c *nftables.Chain) bool { return r.theirs(c.Name) }

func (r remover) remove(ofAnyGeneration bool) error {
	return connected(func(c *nftables.Conn) error {
		generation, chains, err := r.chains(c)
		if err != nil || len(chains) == 0 {
			return listError(err)
		}
		if ofAnyGeneration {
			generation = 0
		}
		if err := r.deleteJumps(c, chains); err != nil {
			return err
		}
		for _, remove := range []func(*nftables.Chain){c.FlushChain, c.DelChain} { // they refer to each other
			for _, list := range chains {
				for _, chain := range list {
					if r.isTheirs(chain) {
						remove(chain)
					}
				}
			}
		}
		return c.FlushWithGenID(generation)
	})
}

// chains returns the generation of rules, and the chains of those tables where something is to be removed.
func (r remover) chains(c *nftables.Conn) (generation uint32, chains map[string][]*nftables.Chain, err error) {
	gen, err := c.GetGen()
	if err != nil {
		return 0, nil, err
	}
	all, err := c.ListChainsOfTableFamily(tableFamily(r.family))
	if err != nil {
		return 0, nil, fmt.Errorf("list chains: %w", err)
	}
	chains = map[string][]*nftables.Chain{}
	for _, c := range all {
		if slices.Contains(iptablesTables, c.Table.Name) {
			chains[c.Table.Name] = append(chains[c.Table.Name], c)
		}
	}
	maps.DeleteFunc(chains, func(_ string, list []*nftables.Chain) bool {
		return !slices.ContainsFunc(list, r.isTheirs)
	})
	return gen.ID, chains, nil
}

// deleteJumps deletes the rules of chains that stay, where they jump or go to one that is to be removed.
func (r remover) deleteJumps(c *nftables.Conn, chains map[string][]*nftables.Chain) error {
	leads := func(e expr.Any) bool {
		v, ok := e.(*expr.Verdict)
		return ok && r.theirs(v.Chain)
	}
	for _, list := range chains {
		for _, chain := range list {
			if r.isTheirs(chain) {
				continue
			}
			rules, err := c.GetRules(chain.Table, chain)
			if err != nil {
				return fmt.Errorf("list rules of the chain %s: %w", chain.Name, err)
			}
			for _, rule := range rules {
				if slices.ContainsFunc(rule.Exprs, leads) {
					err = errors.Join(err, c.DelRule(rule))
				}
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}
