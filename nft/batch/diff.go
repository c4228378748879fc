package batch

import (
	"maps"
	"slices"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/compile"
)

// Diff returns the batch that turns one ruleset into another that was compiled after it.
func Diff(have, want *compile.Ruleset) *Batch {
	b := newBuilder(want.Family)
	added := elements{}
	for c := range want.Changes(have) {
		c.Old.Elements(b.del.add)
		c.New.Elements(added.add)
		b.diffSets(c.Old.Sets, c.New.Sets)
		b.diffChains(c.Old.Chains, c.New.Chains)
		b.Purge = append(b.Purge, c.New.Clients...)
	}
	b.have.Elements = b.del.shared(added)
	for set, list := range added {
		for _, e := range list {
			b.element(set, e)
		}
	}
	for set := range b.have.Elements {
		b.leftovers(set, func() {})
	}
	return b.done()
}

// builder collects operations for a batch.
type builder struct {
	*Batch
	have     *nft.Table // takes what is wanted out, so that what nobody wants remains
	del, add elements
	count    int // operations so far, about
}

func newBuilder(f model.Family) *builder {
	return &builder{
		Batch: &Batch{Family: f, newChains: map[string]bool{}}, have: &nft.Table{Family: f}, del: elements{}, add: elements{},
	}
}

// element adds the operations that lead to a wanted element. An equal one stays, and one with other data is deleted and
// added again.
func (b *builder) element(set string, e nft.Element) {
	was, ok := b.have.Take(set, e.Key)
	if ok && was == e {
		return
	}
	if ok {
		b.del.add(set, was)
	}
	b.add.add(set, e)
	b.count++
}

// leftovers deletes the elements of a set that remain, and calls a function behind each of them.
func (b *builder) leftovers(set string, deleted func()) {
	for _, key := range slices.Sorted(b.have.Keys(set)) {
		e, _ := b.have.Take(set, key)
		b.del.add(set, e)
		b.count++
		deleted()
	}
}

// done returns the batch. Elements of sets that are deleted go with these. An endpoint that a service port with
// affinity loses is noted as gone, once if several lose it.
func (b *builder) done() *Batch {
	for _, set := range b.DeleteSets {
		delete(b.del, set)
	}
	gone := map[string]bool{}
	for set, list := range b.del {
		to := nft.DeclarationOf(set).Gone
		for _, e := range list {
			if to != "" && !gone[e.Key] {
				gone[e.Key] = true
				b.add.add(to, nft.Element{Key: e.Key})
			}
		}
	}
	b.Delete, b.Add = b.del.list(), b.add.list()
	return b.Batch
}

func (b *builder) diffSets(have, want []nft.Set) {
	if len(have)+len(want) == 0 {
		return // as of most service ports
	}
	had, has := setsByName(have), setsByName(want)
	for _, s := range want {
		if !had[s.Name] {
			b.AddSets = append(b.AddSets, s)
		}
	}
	for _, s := range have {
		if !has[s.Name] {
			b.DeleteSets = append(b.DeleteSets, s.Name)
		}
	}
}

func setsByName(sets []nft.Set) map[string]bool {
	names := make(map[string]bool, len(sets))
	for _, s := range sets {
		names[s.Name] = true
	}
	return names
}

func (b *builder) diffChains(have, want []nft.Chain) {
	if len(have)+len(want) == 0 {
		return
	}
	byName := make(map[string]nft.Chain, len(have))
	for _, c := range have {
		byName[c.Name] = c
	}
	for _, c := range want {
		h, ok := byName[c.Name]
		delete(byName, c.Name)
		b.chain(h, ok, c)
	}
	b.DeleteChains = append(b.DeleteChains, slices.Sorted(maps.Keys(byName))...)
}

// chain adds the operations that lead from a chain, if there is one, to another with its name.
func (b *builder) chain(have nft.Chain, exists bool, want nft.Chain) {
	same := func(x, y nft.Rule) bool { return x.Hash(b.Family) == y.Hash(b.Family) }
	switch {
	case !exists:
		b.newChains[want.Name] = true
	case have.Hook != want.Hook || have.Prio != want.Prio || have.Filter != want.Filter || have.Drop != want.Drop:
		b.RemakeBase = append(b.RemakeBase, want.Name)
	case slices.EqualFunc(have.Rules, want.Rules, same):
		return
	}
	b.SetChains = append(b.SetChains, want)
}
