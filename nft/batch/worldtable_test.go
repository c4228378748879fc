package batch_test

import (
	"fmt"
	"hash/maphash"
	"maps"
	"slices"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/batch"
	"github.com/vmapd/vmapd/nft/compile"
)

// smallTable is a table of which there are a million: a copy shares what does not change, and two of them
// are compared by their sums.
type smallTable struct {
	sets     []nft.Set
	chains   map[string]*smallChain
	elements map[string]map[string]nft.Element
	sum      uint64 // of all elements
	plain    uint64 // the same without slots, and without endpoints that are gone
}

// smallChain is a chain with what its rules refer to.
type smallChain struct {
	nft.Chain
	sum    uint64
	chains []string
	sets   []string
}

// seed makes the sums of one run comparable.
var seed = maphash.MakeSeed()

func sumOf(parts ...string) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	for _, p := range parts {
		_, _ = h.WriteString(p) // never fails
		_ = h.WriteByte(0)
	}
	return h.Sum64()
}

// chainTexts are the chains of rules by their first rule: most tables share them.
type chainTexts map[*nft.Rule]*smallChain

func (known chainTexts) of(c nft.Chain) *smallChain {
	if len(c.Rules) > 0 {
		if s := known[&c.Rules[0]]; s != nil && s.Name == c.Name {
			return s
		}
	}
	s := &smallChain{Chain: c, sum: sumOf(c.Name, chainText(model.IPv4, c))}
	for _, r := range c.Rules {
		for _, stmt := range r {
			switch stmt := stmt.(type) {
			case nft.Verdict:
				s.chains = append(s.chains, stmt.Chain)
			case nft.InSet:
				s.sets = append(s.sets, stmt.Set)
			case nft.VerdictMap:
				s.sets = append(s.sets, stmt.Map)
			case nft.DNAT:
				s.sets = append(s.sets, stmt.Map)
			case nft.Remember:
				s.sets = append(s.sets, stmt.Map)
			}
		}
	}
	if len(c.Rules) > 0 {
		known[&c.Rules[0]] = s
	}
	return s
}

// smallTableOf returns the table of a ruleset.
func smallTableOf(r *compile.Ruleset, known chainTexts) *smallTable {
	t := &smallTable{sets: r.AllSets(), chains: map[string]*smallChain{}, elements: map[string]map[string]nft.Element{}}
	for _, c := range r.AllChains() {
		t.chains[c.Name] = known.of(c)
	}
	for set, e := range r.Elements() {
		if t.elements[set] == nil {
			t.elements[set] = map[string]nft.Element{}
		}
		t.elements[set][e.Key] = e
		t.count(set, e, 1)
	}
	return t
}

// count adds an element to the sums by 1, or takes it away by -1 as an unsigned number.
func (t *smallTable) count(set string, e nft.Element, by uint64) {
	t.sum += by * sumOf(set, e.Key, e.End, e.Data, e.Verdict.String(), e.Comment)
	if set == nft.GoneEndpoints {
		return
	}
	if key := nft.DeclarationOf(set).Key; len(key) > 0 && key[len(key)-1] == nft.Slot {
		e.Key = e.Key[:len(e.Key)-4]
	}
	t.plain += by * sumOf(set, e.Key, e.End, e.Data, e.Verdict.String(), e.Comment)
}

// apply does what the kernel does with a batch, but for the deletions behind it.
func (t *smallTable) apply(b *batch.Batch, known chainTexts) (*smallTable, error) {
	const minusOne = ^uint64(0)
	next := &smallTable{slices.Concat(t.sets, b.AddSets), t.chains, maps.Clone(t.elements), t.sum, t.plain}
	if len(b.SetChains) > 0 {
		next.chains = maps.Clone(t.chains)
	}
	for _, c := range b.SetChains {
		if next.chains[c.Name] != nil == b.NewChain(c.Name) && !slices.Contains(b.RemakeBase, c.Name) {
			return nil, fmt.Errorf("chain %s: new is %v", c.Name, b.NewChain(c.Name))
		}
		next.chains[c.Name] = known.of(c)
	}
	own := map[string]bool{} // sets that next does not share
	change := func(set string) map[string]nft.Element {
		if !own[set] {
			own[set] = true
			if next.elements[set] = maps.Clone(t.elements[set]); next.elements[set] == nil {
				next.elements[set] = map[string]nft.Element{}
			}
		}
		return next.elements[set]
	}
	for _, list := range b.Delete {
		for _, op := range list.Ops {
			set := change(list.Set)
			if have, ok := set[op.Key]; !ok || have != op {
				return nil, fmt.Errorf("%s: deletes %q, which is not there like that", list.Set, op.Key)
			}
			delete(set, op.Key)
			next.count(list.Set, op, minusOne)
		}
	}
	for _, list := range b.Add {
		for _, op := range list.Ops {
			set := change(list.Set)
			if _, ok := set[op.Key]; ok {
				if list.Set == nft.GoneEndpoints {
					continue
				}
				return nil, fmt.Errorf("%s: adds %q, which is there", list.Set, op.Key)
			}
			set[op.Key] = op
			next.count(list.Set, op, 1)
		}
	}
	return next, nil
}

// delete carries out the deletions behind a batch. Nothing may refer to what is deleted.
func (t *smallTable) delete(b *batch.Batch) (*smallTable, error) {
	if len(b.DeleteChains)+len(b.DeleteSets) == 0 {
		return t, nil
	}
	const minusOne = ^uint64(0)
	next := &smallTable{slices.Clone(t.sets), maps.Clone(t.chains), maps.Clone(t.elements), t.sum, t.plain}
	for _, name := range b.DeleteChains {
		if next.chains[name] == nil {
			return nil, fmt.Errorf("chain %s: is deleted, but not there", name)
		}
		delete(next.chains, name)
	}
	for _, name := range b.DeleteSets {
		i := slices.IndexFunc(next.sets, func(s nft.Set) bool { return s.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("set %s: is deleted, but not there", name)
		}
		next.sets = slices.Delete(next.sets, i, i+1)
		for _, e := range next.elements[name] {
			next.count(name, e, minusOne)
		}
		delete(next.elements, name)
	}
	for _, c := range next.chains {
		for _, name := range c.chains {
			if name != "" && next.chains[name] == nil {
				return nil, fmt.Errorf("chain %s leads to %s, which is deleted", c.Name, name)
			}
		}
		for _, name := range c.sets {
			if slices.Contains(b.DeleteSets, name) {
				return nil, fmt.Errorf("chain %s looks into %s, which is deleted", c.Name, name)
			}
		}
	}
	for set, list := range next.elements {
		for _, e := range list {
			if e.Verdict.Chain != "" && next.chains[e.Verdict.Chain] == nil {
				return nil, fmt.Errorf("%s leads to %s, which is deleted", set, e.Verdict.Chain)
			}
		}
	}
	return next, nil
}

// reached is the sum of the chains that a packet can come to. The others make no difference.
func (t *smallTable) reached() uint64 {
	total := uint64(0)
	seen := make(map[string]bool, len(t.chains))
	var visit func(name string)
	visit = func(name string) {
		c := t.chains[name]
		if c == nil || seen[name] {
			return
		}
		seen[name] = true
		total += c.sum
		for _, next := range c.chains {
			visit(next)
		}
	}
	for name, c := range t.chains {
		if c.Hook != nft.NoHook {
			visit(name)
		}
	}
	for _, list := range t.elements {
		for _, e := range list {
			visit(e.Verdict.Chain)
		}
	}
	return total
}

// table returns the content for a simulator.
func (t *smallTable) table() *nft.Table {
	table := &nft.Table{Family: model.IPv4, Sets: t.sets, Elements: map[string]nft.Elements{}}
	for _, c := range t.chains {
		table.Chains = append(table.Chains, c.Chain)
	}
	for set, list := range t.elements {
		for _, e := range list {
			table.Add(set, e)
		}
	}
	return table
}
