package batch

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
)

// Op is one operation of a batch.
type Op struct {
	Verb   Verb
	Object any // nil: the table; an nft.Set, nft.Flowtable, nft.Timeout or nft.Chain, a Rule, or Elements
}

// Verb is nft's word for an operation.
type Verb string

// The verbs.
const (
	Add    Verb = "add"
	Delete Verb = "delete"
	Flush  Verb = "flush" // a chain: delete its rules
)

// Rule is a rule at the end of a chain.
type Rule struct {
	Chain string
	nft.Rule
}

// Ops yields the operations in the order in which they are carried out, with so many elements of a set in each.
func (b *Batch) Ops(elements int) iter.Seq[Op] {
	return func(yield func(Op) bool) {
		more := true
		do := func(verb Verb, object any) { more = more && yield(Op{verb, object}) }
		if b.DeleteTable {
			do(Delete, nil)
		}
		if b.CreateTable {
			do(Add, nil)
		}
		for _, s := range b.AddSets {
			do(Add, s)
		}
		for _, f := range b.AddFlowtables {
			do(Add, f)
		}
		for _, name := range b.RemakeBase {
			do(Delete, nft.Chain{Name: name})
		}
		for _, c := range b.SetChains {
			if b.NewChain(c.Name) {
				do(Add, c)
			} else {
				do(Flush, c)
			}
		}
		for _, t := range b.AddTimeouts {
			do(Add, t)
		}
		for _, c := range b.SetChains {
			for _, r := range c.Rules {
				do(Add, Rule{c.Name, r})
			}
		}
		for _, verb := range [...]Verb{Delete, Add} {
			for _, list := range map[Verb][]Elements{Delete: b.Delete, Add: b.Add}[verb] {
				for ops := range slices.Chunk(list.List, elements) {
					do(verb, Elements{list.Set, ops})
				}
			}
		}
		for _, verb := range [...]Verb{Flush, Delete} {
			for _, name := range b.DeleteChains {
				do(verb, nft.Chain{Name: name})
			}
		}
		for _, name := range b.DeleteSets {
			do(Delete, nft.DeclarationOf(name))
		}
		for _, name := range b.DeleteFlowtables {
			do(Delete, nft.Flowtable{Name: name})
		}
		for _, name := range b.DeleteTimeouts {
			do(Delete, nft.Timeout{Name: name})
		}
	}
}

// Text returns the operation as a command of nft. Of several elements, it has the first.
func (o Op) Text(f model.Family) string {
	kind, name, declaration := "", "", []string(nil)
	switch x := o.Object.(type) {
	case nil:
		kind, declaration = "table", []string{fmt.Sprintf("comment %q", nft.TableComment)}
	case nft.Set:
		kind, name, declaration = x.Word(), " "+x.Name, x.Declaration(f)
	case nft.Flowtable:
		kind, name, declaration = "flowtable", " "+x.Name, x.Declaration()
	case nft.Timeout:
		kind, name, declaration = "ct timeout", " "+x.Name, x.Declaration(f)
	case nft.Chain:
		if kind, name = "chain", " "+x.Name; x.Hook != nft.NoHook {
			declaration = []string{strings.TrimSuffix(x.Declaration(), ";")}
		}
	case Rule:
		kind, name = "rule", " "+x.Chain+" "+x.Text(f)
	case Elements:
		kind, name = "element", fmt.Sprintf(" %s { %s }", x.Set, nft.DeclarationOf(x.Set).Text(f, x.List[0]))
		if more := len(x.List) - 1; more > 0 {
			name += fmt.Sprintf(" and %d more", more)
		}
	}
	text := fmt.Sprintf("%s %s %s %s%s", o.Verb, kind, nft.FamilyWord(f), nft.TableName, name)
	if o.Verb == Add && len(declaration) > 0 {
		text += " { " + strings.Join(declaration, "; ") + "; }"
	}
	return text
}
