package nft

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// Batch is what turns one state of a table into another: a list of operations that
// the kernel carries out together or not at all. The fields are in the order in which
// they are carried out.
type Batch struct {
	Family      model.Family
	DeleteTable bool     // what is there has another layout: begin anew
	CreateTable bool     // there is none
	AddSets     []Set    // declarations only
	SetChains   []Chain  // made or, if Exists says so, given other rules
	RemakeBase  []string // base chains of SetChains whose hook changed: deleted before
	Delete      []ElementOp
	Add         []ElementOp

	// What can only be deleted once nothing uses it. Before Linux 6.2 that is known
	// only after the batch, so these go in a batch of their own behind it.
	DeleteChains []string
	DeleteSets   []string

	newChains map[string]bool
}

// ElementOp is an element of a set to add or delete.
type ElementOp struct {
	Set     string
	Element Element
	Port    *model.ServicePort // whose it is; nil for what no single Service determines
}

// Empty reports whether there is nothing to do.
func (b *Batch) Empty() bool { return b.Len() == 0 }

// Len returns the number of operations.
func (b *Batch) Len() int {
	n := len(b.AddSets) + len(b.SetChains) + len(b.Delete) + len(b.Add) + len(b.DeleteChains) + len(b.DeleteSets)
	if b.CreateTable {
		n++
	}
	if b.DeleteTable {
		n++
	}
	return n
}

// NewChain reports whether a chain of SetChains does not exist yet.
func (b *Batch) NewChain(name string) bool {
	return b.newChains[name] || slices.Contains(b.RemakeBase, name)
}

// ElementLists yields the elements to delete, or to add, set by set.
func ElementLists(ops []ElementOp) iter.Seq2[string, []ElementOp] {
	return func(yield func(string, []ElementOp) bool) {
		for len(ops) > 0 {
			n := 1
			for n < len(ops) && ops[n].Set == ops[0].Set {
				n++
			}
			if !yield(ops[0].Set, ops[:n]) {
				return
			}
			ops = ops[n:]
		}
	}
}

// sortOps groups operations by set. Within a set, the order of arrival stays.
func sortOps(ops []ElementOp) {
	slices.SortStableFunc(ops, func(a, b ElementOp) int { return strings.Compare(a.Set, b.Set) })
}

// SplitAdditions takes from the batch what can be added ahead of it without changing
// where any packet goes: new slots of endpoints, which no verdict refers to yet. It
// returns them in pieces of at most n elements. Sets must exist before.
func (b *Batch) SplitAdditions(n int) [][]ElementOp {
	replaced := map[string]bool{}
	for _, op := range b.Delete {
		if isEndpoints(op.Set) {
			replaced[op.Set+op.Element.Key] = true
		}
	}
	var ahead, rest []ElementOp
	for _, op := range b.Add {
		if isEndpoints(op.Set) && !replaced[op.Set+op.Element.Key] {
			ahead = append(ahead, op)
		} else {
			rest = append(rest, op)
		}
	}
	b.Add = rest
	return slices.Collect(slices.Chunk(ahead, n))
}

func isEndpoints(set string) bool { return set == Endpoints || set == NodePortEndpoints }

// Without takes out of the batch what concerns some service ports.
func (b *Batch) Without(ports map[model.ServicePortName]bool) {
	out := func(op ElementOp) bool { return op.Port != nil && ports[op.Port.Name] }
	b.Delete = slices.DeleteFunc(b.Delete, out)
	b.Add = slices.DeleteFunc(b.Add, out)
}

// String returns the batch as an nft script.
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
		line("add %s %s %s { %s }", set.word(), table, set.Name, strings.Join(set.declaration(b.Family), "; "))
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
	sets := LayoutSets()
	writeOps := func(verb string, ops []ElementOp) {
		for name, list := range ElementLists(ops) {
			set := findSet(sets, name)
			for _, op := range list {
				line("%s element %s %s { %s }", verb, table, name, set.Text(b.Family, op.Element))
			}
		}
	}
	writeOps("delete", b.Delete)
	writeOps("add", b.Add)
	for _, name := range b.DeleteChains {
		line("delete chain %s %s", table, name)
	}
	for _, name := range b.DeleteSets {
		line("delete set %s %s", table, name)
	}
	return s.String()
}

func findSet(sets []Set, name string) Set {
	for _, s := range sets {
		if s.Name == name {
			return s
		}
	}
	return Set{Name: name}
}
