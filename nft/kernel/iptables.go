package kernel

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/internal/nfnl"
)

// iptablesTables are the tables that iptables-nft makes, and reads.
var iptablesTables = []string{"raw", "mangle", "nat", "filter", "security"}

// Lister lists the objects of others in nf_tables, in the network namespace of the thread that
// calls it first, over a connection that lasts: see reader. The zero value works. It is for one
// goroutine.
type Lister struct{ reader reader }

// Close ends the connection. The next call opens another one.
func (l *Lister) Close() { l.reader.close() }

// on calls use with the connection, unless the kernel has no nf_tables. After an error, which may
// leave the rest of a list, the next call opens another connection.
func (l *Lister) on(use func(*conn) error) error {
	c, err := l.reader.open(thisKernel(0))
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil
	}
	if err == nil {
		err = use(c)
	}
	if err != nil {
		l.reader.close()
	}
	return err
}

// IPTablesChains is [Lister.IPTablesChains] over a connection of its own.
func IPTablesChains(f model.Family) ([]string, error) {
	var l Lister
	defer l.Close()
	return l.IPTablesChains(f)
}

// IPTablesChains returns the names of the chains in the tables of iptables-nft, those of each
// table in their order there. Without nf_tables there are none.
func (l *Lister) IPTablesChains(f model.Family) (names []string, err error) {
	err = l.on(func(c *conn) error {
		chains, err := c.iptablesChains(f)
		for _, table := range iptablesTables {
			names = append(names, chains[table]...)
		}
		return err
	})
	return names, err
}

// IPTablesRules returns the number of rules of a chain in the table nat of iptables-nft.
func IPTablesRules(f model.Family, chain string) (n int, err error) {
	var l Lister
	defer l.Close()
	err = l.on(func(c *conn) error {
		return c.dump(unix.NFT_MSG_GETRULE, f, "nat", chain, func([]byte) { n++ })
	})
	return n, err
}

// TableNames returns the names of all tables of a family. Without nf_tables there are none.
func (l *Lister) TableNames(f model.Family) (names []string, err error) {
	err = l.on(func(c *conn) error {
		return c.dump(unix.NFT_MSG_GETTABLE, f, "", "", func(attrs []byte) {
			names = append(names, string(nfnl.Text(nfnl.First(attrs, objectTable))))
		})
	})
	return names, err
}

// RemoveIPTablesChains deletes chains from the tables of iptables-nft, and the rules of other
// chains that lead there: all of a family's or, after an error, none.
func RemoveIPTablesChains(f model.Family, theirs func(chain string) bool) error {
	var l Lister
	defer l.Close()
	return l.on(func(c *conn) (err error) {
		// Others may change these tables at any time.
		for range tablePasses {
			c.interrupted = false
			if err = c.removeChains(f, theirs); err == nil && !c.interrupted {
				return nil
			}
		}
		if err != nil {
			err = fmt.Errorf("delete %v chains of iptables-nft: %w", f, err)
		}
		return err
	})
}

// dump passes on the attributes of all objects of a kind in a table or, without a name, in all
// tables; with a chain, only that one's rules.
func (c *conn) dump(msgType uint16, f model.Family, table, chain string, each func(attrs []byte)) error {
	m := messages{family: f, table: table, port: c.socket.Port()}
	at := m.begin(msgType, unix.NLM_F_DUMP)
	if table != "" {
		m.string(objectTable, table)
	}
	if chain != "" {
		m.string(unix.NFTA_RULE_CHAIN, chain)
	}
	m.end(at)
	err := c.exchange(&m, func(attrs []byte) error {
		each(attrs)
		return nil
	})
	if nfnl.IsMissing(err) {
		return nil
	}
	return err
}

// iptablesChains returns the names of the chains of each table of iptables-nft.
func (c *conn) iptablesChains(f model.Family) (map[string][]string, error) {
	chains := map[string][]string{}
	err := c.dump(unix.NFT_MSG_GETCHAIN, f, "", "", func(attrs []byte) {
		if table := string(nfnl.Text(nfnl.First(attrs, objectTable))); slices.Contains(iptablesTables, table) {
			chains[table] = append(chains[table], string(nfnl.Text(nfnl.First(attrs, unix.NFTA_CHAIN_NAME))))
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list chains: %w", err)
	}
	return chains, nil
}

func (c *conn) removeChains(f model.Family, theirs func(chain string) bool) error {
	chains, err := c.iptablesChains(f)
	if err != nil {
		return err
	}
	maps.DeleteFunc(chains, func(_ string, names []string) bool { return !slices.ContainsFunc(names, theirs) })
	if len(chains) == 0 {
		return nil
	}
	jumps, err := c.rulesThatLead(f, chains, theirs)
	if err != nil {
		return err
	}
	m := c.newBatch(f, "")
	for _, r := range jumps {
		m.table = r.table
		m.deleteRule(r.chain, r.handle)
	}
	for _, remove := range []func(string){m.flushChain, m.deleteChain} { // they refer to each other
		for table, names := range chains {
			m.table = table
			for _, name := range names {
				if theirs(name) {
					remove(name)
				}
			}
		}
	}
	defer c.releaseBuffer()
	return c.commit(&m)
}

// foreignRule is a rule of somebody else's table.
type foreignRule struct {
	table, chain string
	handle       uint64
}

// rulesThatLead returns the rules of others' chains that jump or go to the given owner's.
func (c *conn) rulesThatLead(f model.Family, chains map[string][]string, theirs func(chain string) bool) ([]foreignRule, error) {
	var rules []foreignRule
	for table, names := range chains {
		for _, name := range names {
			if theirs(name) {
				continue
			}
			err := c.dump(unix.NFT_MSG_GETRULE, f, table, name, func(attrs []byte) {
				if theirs(targetChain(nfnl.First(attrs, unix.NFTA_RULE_EXPRESSIONS))) {
					rules = append(rules, foreignRule{table, name, nfnl.Uint64(nfnl.First(attrs, unix.NFTA_RULE_HANDLE))})
				}
			})
			if err != nil {
				return nil, fmt.Errorf("list rules of the chain %s: %w", name, err)
			}
		}
	}
	return rules, nil
}

// targetChain returns the chain to which a rule with these expressions leads, or "".
func targetChain(exprs []byte) string {
	for e := range nfnl.Attributes(exprs, unix.NFTA_LIST_ELEM) {
		if string(nfnl.Text(nfnl.First(e, unix.NFTA_EXPR_NAME))) != "immediate" {
			continue
		}
		data := nfnl.First(nfnl.First(e, unix.NFTA_EXPR_DATA), unix.NFTA_IMMEDIATE_DATA)
		if chain := nfnl.First(nfnl.First(data, unix.NFTA_DATA_VERDICT), unix.NFTA_VERDICT_CHAIN); chain != nil {
			return string(nfnl.Text(chain))
		}
	}
	return ""
}

// deleteRule deletes one rule of a chain.
func (m *messages) deleteRule(chain string, handle uint64) {
	at := m.object(unix.NFT_MSG_DELRULE, 0)
	m.string(unix.NFTA_RULE_CHAIN, chain)
	m.uint64(unix.NFTA_RULE_HANDLE, handle)
	m.end(at)
}
