// Package batch turns two rulesets, or a table and a ruleset, into a [Batch] of operations that lead from one to the
// other.
package batch

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/compile"
)

// Batch is what turns one state of a table into another: a list of operations that
// the kernel carries out together or not at all. The fields are in the order in which
// they are carried out.
type Batch struct {
	Family        model.Family
	DeleteTable   bool      // the table has another layout, and is made anew
	CreateTable   bool      // there is no table
	AddSets       []nft.Set // declarations only
	AddFlowtables []nft.Flowtable
	RemakeBase    []string    // base chains of SetChains whose hook changed: deleted first
	SetChains     []nft.Chain // made or, unless NewChain says so, given other rules
	Delete        []SetOps
	Add           []SetOps

	// Chains and sets can only be deleted once nothing refers to them. Before Linux 6.2 the
	// kernel drops references only after the batch, so these follow in a batch of their own.
	DeleteChains     []string
	DeleteSets       []string
	DeleteFlowtables []string

	// Maps to purge after all that: packets change them meanwhile.
	Purge []compile.Purge

	newChains map[string]bool
	large     *compile.Ruleset // whose elements Pieces makes; nil: the batch has all
}

// SetOps are elements of one set to add or delete.
type SetOps struct {
	Set string
	Ops []nft.ElementOp
}

// Empty reports whether there is nothing to do.
func (b *Batch) Empty() bool { return b.Len() == 0 }

// Len returns the number of operations, without those that only Pieces makes.
func (b *Batch) Len() int {
	n := len(b.AddSets) + len(b.SetChains) + count(b.Delete) + count(b.Add) +
		len(b.DeleteChains) + len(b.DeleteSets) + len(b.AddFlowtables) + len(b.DeleteFlowtables)
	if b.CreateTable {
		n++
	}
	if b.DeleteTable {
		n++
	}
	return n
}

func count(list []SetOps) int {
	n := 0
	for _, s := range list {
		n += len(s.Ops)
	}
	return n
}

// NewChain reports whether a chain of SetChains does not exist yet.
func (b *Batch) NewChain(name string) bool {
	return b.newChains[name] || slices.Contains(b.RemakeBase, name)
}

// Without removes the elements of some service ports from the batch.
func (b *Batch) Without(ports map[model.ServicePortName]bool) {
	for _, list := range [...][]SetOps{b.Delete, b.Add} {
		for i := range list {
			list[i].Ops = slices.DeleteFunc(list[i].Ops, func(op nft.ElementOp) bool {
				return op.Port != nil && ports[op.Port.Name]
			})
		}
	}
}

// String returns the batch as an nft script. Maps to purge are comments in it, because nft
// has no such command.
func (b *Batch) String() string {
	var s strings.Builder
	table := nft.FamilyWord(b.Family) + " " + nft.TableName
	line := func(format string, args ...any) { fmt.Fprintf(&s, format+"\n", args...) }
	if b.DeleteTable {
		line("delete table %s", table)
	}
	if b.CreateTable {
		line("add table %s { comment %q; }", table, nft.TableComment)
	}
	for _, set := range b.AddSets {
		line("add %s %s %s { %s; }", set.Word(), table, set.Name, strings.Join(set.Declaration(b.Family), "; "))
	}
	for _, t := range b.AddFlowtables {
		line("add flowtable %s %s { %s; }", table, t.Name, strings.Join(t.Declaration(), "; "))
	}
	for _, name := range b.RemakeBase {
		line("delete chain %s %s", table, name)
	}
	for _, c := range b.SetChains {
		switch {
		case c.Hook != nft.NoHook && b.NewChain(c.Name):
			line("add chain %s %s { %s }", table, c.Name, c.Declaration())
		case b.NewChain(c.Name):
			line("add chain %s %s", table, c.Name)
		default:
			line("flush chain %s %s", table, c.Name)
		}
	}
	for _, c := range b.SetChains {
		for _, r := range c.Rules {
			line("add rule %s %s %s", table, c.Name, r.Text(b.Family))
		}
	}
	writeOps := func(verb string, lists []SetOps) {
		for _, list := range lists {
			set := nft.DeclarationOf(list.Set)
			for _, op := range list.Ops {
				line("%s element %s %s { %s }", verb, table, list.Set, set.Text(b.Family, op.Element))
			}
		}
	}
	writeOps("delete", b.Delete)
	writeOps("add", b.Add)
	for _, name := range b.DeleteChains {
		line("delete chain %s %s", table, name)
	}
	for _, name := range b.DeleteSets {
		line("delete %s %s %s", nft.DeclarationOf(name).Word(), table, name)
	}
	for _, name := range b.DeleteFlowtables {
		line("delete flowtable %s %s", table, name)
	}
	for _, p := range b.Purge {
		line("# purge map %s %s", table, p.Map())
	}
	return s.String()
}
