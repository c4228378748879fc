package nft

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// Batch is what turns one state of a table into another: a list of operations that
// the kernel carries out together or not at all. The fields are in the order in which
// they are carried out.
type Batch struct {
	Family        model.Family
	DeleteTable   bool  // the table has another layout, and is made anew
	CreateTable   bool  // there is no table
	AddSets       []Set // declarations only
	AddFlowtables []Flowtable
	RemakeBase    []string // base chains of SetChains whose hook changed: deleted first
	SetChains     []Chain  // made or, unless NewChain says so, given other rules
	Delete        []SetOps
	Add           []SetOps

	// Chains and sets can only be deleted once nothing refers to them. Before Linux 6.2 the
	// kernel drops references only after the batch, so these follow in a batch of their own.
	DeleteChains     []string
	DeleteSets       []string
	DeleteFlowtables []string

	// Maps to purge after all that: packets change them meanwhile.
	Purge []Purge

	newChains map[string]bool
	postponed *postponed // elements that Split adds; nil: none
	// Chains of SetChains that get more rules of features, or fewer, and no others.
	moreRules, fewerRules map[string]bool
}

// SetOps are elements of one set to add or delete. Of a set with many, there are several lists.
type SetOps struct {
	Set string
	Ops []ElementOp
}

// ElementOp is one of them.
type ElementOp struct {
	Element
	Port *model.ServicePort // the owner; nil for an element that no single Service determines
}

// Empty reports whether there is nothing to do.
func (b *Batch) Empty() bool { return b.Len() == 0 }

// Len returns the number of operations, without those that only Split makes.
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

// Postponed returns the number of operations that Split has made.
func (b *Batch) Postponed() int {
	if b.postponed == nil {
		return 0
	}
	return b.postponed.made
}

// MustSplit reports whether the batch lacks elements that only Split makes, see [NewTable].
func (b *Batch) MustSplit() bool { return b.postponed != nil }

// NewChain reports whether a chain of SetChains does not exist yet.
func (b *Batch) NewChain(name string) bool {
	return b.newChains[name] || slices.Contains(b.RemakeBase, name)
}

// aheadChains takes from the batch new chains that no hook enters, those that remember clients, of
// which there are none yet, and chains that get more rules, whose sets are empty. They come before the elements for two
// reasons. A packet keeps the generation of rules with which it entered the base chain, but finds an element that is
// committed meanwhile: a new chain to which it leads would be empty, and the packet leave untranslated (nft_do_chain).
// And the kernel walks the whole map for each chain that begins to look into it (nf_tables_bind_set).
func (b *Batch) aheadChains() []*Batch {
	isAhead := func(c Chain) bool {
		return b.moreRules[c.Name] || b.newChains[c.Name] && (c.Hook == NoHook || c.Name == rememberArrival || c.Name == rememberOutput)
	}
	chains := &Batch{Family: b.Family, newChains: b.newChains}
	for _, c := range b.SetChains {
		if isAhead(c) {
			chains.SetChains = append(chains.SetChains, c)
		}
	}
	if len(chains.SetChains) == 0 {
		return nil
	}
	b.SetChains = slices.DeleteFunc(b.SetChains, isAhead)
	return []*Batch{chains}
}

// aheadElements takes elements from the batch that do not affect where packets go: new
// counters and, in a new table, endpoints, to which no frontend refers yet. It returns them
// as batches of n elements at most.
func (b *Batch) aheadElements(n int) []*Batch {
	var ahead []*Batch
	for i, s := range b.Add {
		if !b.isAhead(s.Set) {
			continue
		}
		early := []SetOps{s}
		if replaced := deleted(b.Delete, s.Set); len(replaced) == 0 {
			b.Add[i].Ops = nil
		} else {
			early = take(b.Add[i:i+1], func(_ string, op *ElementOp) bool { return !replaced[op.Key] })
		}
		for part := range chunks(early, n) {
			ahead = append(ahead, &Batch{Family: b.Family, Add: part})
		}
	}
	return ahead
}

// deleted returns the keys that are deleted from a set.
func deleted(lists []SetOps, set string) map[string]bool {
	keys := map[string]bool{}
	for _, s := range lists {
		if s.Set == set {
			for _, op := range s.Ops {
				keys[op.Key] = true
			}
		}
	}
	return keys
}

// isAhead reports whether new elements of a set go ahead of a large batch. A frontend that
// is there already may choose a new slot at once, see [capacity].
func (b *Batch) isAhead(set string) bool {
	s := DeclarationOf(set)
	return s.Counter || b.CreateTable && s.hasSlots() && !isOwn(set)
}

// Without removes the elements of some service ports from the batch.
func (b *Batch) Without(ports map[model.ServicePortName]bool) {
	for _, list := range [...][]SetOps{b.Delete, b.Add} {
		for i := range list {
			list[i].Ops = slices.DeleteFunc(list[i].Ops, func(op ElementOp) bool {
				return op.Port != nil && ports[op.Port.Name]
			})
		}
	}
}

// String returns the batch as an nft script. Maps to purge are comments in it, because nft
// has no such command.
func (b *Batch) String() string {
	var s strings.Builder
	table := ipWord(b.Family) + " " + TableName
	line := func(format string, args ...any) { fmt.Fprintf(&s, format+"\n", args...) }
	if b.DeleteTable {
		line("delete table %s", table)
	}
	if b.CreateTable {
		line("add table %s { comment %q; }", table, TableComment)
	}
	for _, set := range b.AddSets {
		line("add %s %s %s { %s; }", set.word(), table, set.Name, strings.Join(set.declaration(b.Family), "; "))
	}
	for _, t := range b.AddFlowtables {
		line("add flowtable %s %s { %s; }", table, t.Name, strings.Join(t.declaration(), "; "))
	}
	for _, name := range b.RemakeBase {
		line("delete chain %s %s", table, name)
	}
	for _, c := range b.SetChains {
		switch {
		case c.Hook != NoHook && b.NewChain(c.Name):
			line("add chain %s %s { %s }", table, c.Name, c.declaration())
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
			set := DeclarationOf(list.Set)
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
		line("delete %s %s %s", DeclarationOf(name).word(), table, name)
	}
	for _, name := range b.DeleteFlowtables {
		line("delete flowtable %s %s", table, name)
	}
	for _, p := range b.Purge {
		line("# purge map %s %s", table, p.Map())
	}
	return s.String()
}
