package batch_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/batch"
	"github.com/vmapd/vmapd/nft/compile"
)

// The address plan of these tests is modeltest's: pods 10.0.0.0/8, ClusterIPs
// 172.30.0.0/16, nodes 192.168.0.0/24 (ours .2), load-balancer addresses
// 192.168.98.0/24, ExternalIPs 192.168.99.0/24, outside 203.0.113.0/24, and IPv6 twins.

var configs = modeltest.Configs

// elements are a table's, by set and key.
type elements map[string]map[string]nft.Element

// each calls do for every element of a ruleset.
func each(r *compile.Ruleset, do func(set string, e nft.Element)) {
	for unit := range r.Units() {
		unit.Elements(do)
	}
}

func elementsOf(t *testing.T, r *compile.Ruleset) elements {
	t.Helper()
	all := elements{}
	each(r, func(set string, e nft.Element) {
		if _, ok := all[set][e.Key]; ok {
			t.Fatalf("%s has an element twice: %s", set, text(r, set, e))
		}
		if all[set] == nil {
			all[set] = map[string]nft.Element{}
		}
		all[set][e.Key] = e
	})
	return all
}

// setOp is an element to add to or delete from a set.
type setOp struct {
	Set     string
	Element nft.Element
}

func flat(lists []batch.Elements) []setOp {
	var all []setOp
	for _, list := range lists {
		for _, op := range list.List {
			all = append(all, setOp{list.Set, op})
		}
	}
	return all
}

// apply does with elements what the kernel does with a batch: what is deleted must be
// there, what is added must not. Endpoints that are gone are only watched for a while, and no part of
// a ruleset.
func (all elements) apply(t *testing.T, b *batch.Batch) elements {
	t.Helper()
	next := elements{}
	for set, list := range all {
		next[set] = maps.Clone(list)
	}
	deleted := map[setOp]bool{}
	for _, op := range flat(b.Delete) {
		deleted[op] = true
		if have, ok := next[op.Set][op.Element.Key]; !ok || have != op.Element {
			t.Fatalf("%s: deletes %q, which is not there like that", op.Set, op.Element.Key)
		}
		delete(next[op.Set], op.Element.Key)
		if len(next[op.Set]) == 0 {
			delete(next, op.Set)
		}
	}
	for _, op := range flat(b.Add) {
		if op.Set == nft.GoneEndpoints {
			continue
		}
		if deleted[op] { // a counter would begin at 0
			t.Fatalf("%s: deletes %q, and adds it again", op.Set, op.Element.Key)
		}
		if _, ok := next[op.Set][op.Element.Key]; ok {
			t.Fatalf("%s: adds %q, which is there", op.Set, op.Element.Key)
		}
		if next[op.Set] == nil {
			next[op.Set] = map[string]nft.Element{}
		}
		next[op.Set][op.Element.Key] = op.Element
	}
	for _, set := range b.DeleteSets {
		delete(next, set) // with all that is in it
	}
	return next
}

// checkApplied checks that a batch turns what have has into what want has, in elements
// and in chains.
func checkApplied(t *testing.T, have *compile.Ruleset, b *batch.Batch, want *compile.Ruleset) {
	t.Helper()
	wanted, got := elementsOf(t, want), elementsOf(t, have).apply(t, b)
	for _, set := range want.AllSets() {
		if !maps.Equal(wanted[set.Name], got[set.Name]) {
			t.Errorf("%s, after the batch:\n%s", set.Name, cmp.Diff(texts(want, set, wanted[set.Name]), texts(want, set, got[set.Name])))
		}
	}
	checkSets(t, have.AllSets(), b, want)
	checkFlowtables(t, have, b, want)
	checkChains(t, have.Table().Chains, b, want)
}

func checkSets(t *testing.T, have []nft.Set, b *batch.Batch, want *compile.Ruleset) {
	t.Helper()
	got := map[string]nft.Set{}
	for _, s := range have {
		got[s.Name] = s
	}
	for _, s := range b.AddSets {
		if _, ok := got[s.Name]; ok {
			t.Errorf("set %s: is made, but there", s.Name)
		}
		got[s.Name] = s
	}
	for _, name := range b.DeleteSets {
		if _, ok := got[name]; !ok {
			t.Errorf("set %s: is deleted, but not there", name)
		}
		delete(got, name)
	}
	wanted := map[string]nft.Set{}
	for _, s := range want.AllSets() {
		wanted[s.Name] = s
	}
	testaid.Equal(t, "sets after the batch", wanted, got)
}

func checkFlowtables(t *testing.T, have *compile.Ruleset, b *batch.Batch, want *compile.Ruleset) {
	t.Helper()
	got := append(slices.Clone(have.Options.Flowtables()), b.AddFlowtables...)
	for _, name := range b.DeleteFlowtables {
		got = slices.DeleteFunc(got, func(f nft.Flowtable) bool { return f.Name == name })
	}
	testaid.Equal(t, "flowtables after the batch", fmt.Sprint(want.Options.Flowtables()), fmt.Sprint(got))
}

func checkChains(t *testing.T, have []nft.Chain, b *batch.Batch, want *compile.Ruleset) {
	t.Helper()
	got := map[string]string{}
	for _, c := range have {
		got[c.Name] = chainText(want.Family, c)
	}
	for _, c := range b.SetChains {
		if _, ok := got[c.Name]; ok == b.NewChain(c.Name) {
			t.Errorf("chain %s: there is %v, new is %v", c.Name, ok, b.NewChain(c.Name))
		}
		got[c.Name] = chainText(want.Family, c)
	}
	for _, name := range b.DeleteChains {
		if _, ok := got[name]; !ok {
			t.Errorf("chain %s: is deleted, but not there", name)
		}
		delete(got, name)
	}
	wanted := map[string]string{}
	for _, c := range want.Table().Chains {
		wanted[c.Name] = chainText(want.Family, c)
	}
	testaid.Equal(t, "chains after the batch", wanted, got)
}

func chainText(f model.Family, c nft.Chain) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v %d", c.Hook, c.Prio)
	for _, r := range c.Rules {
		b.WriteString("\n" + r.Text(f))
	}
	return b.String()
}

func text(r *compile.Ruleset, set string, e nft.Element) string {
	for _, s := range r.AllSets() {
		if s.Name == set {
			return s.Text(r.Family, e)
		}
	}
	return "?"
}

func texts(r *compile.Ruleset, set nft.Set, list map[string]nft.Element) []string {
	all := []string{}
	for _, e := range list {
		all = append(all, set.Text(r.Family, e))
	}
	slices.Sort(all)
	return all
}

// tableOf is what would be read back of a ruleset.
func tableOf(t *testing.T, r *compile.Ruleset) *nft.Table {
	t.Helper()
	elementsOf(t, r) // none is there twice
	return r.Table()
}

// pack returns elements as a table has them.
func (all elements) pack(t *testing.T) map[string]nft.Elements {
	t.Helper()
	packed := map[string]nft.Elements{}
	for set, list := range all {
		packed[set] = nft.Elements{}
		for _, e := range list {
			packed[set][e.Key] = e
		}
	}
	return packed
}

// unpack returns the elements that a table has.
func unpack(table *nft.Table) elements {
	all := elements{}
	for set, list := range table.Elements {
		all[set] = map[string]nft.Element{}
		for _, e := range list {
			all[set][e.Key] = e
		}
	}
	return all
}

// withSources returns an outcome with the sources of after where it is masqueraded still, as some of before was: for
// connections that begin while a batch is committed, masquerading ends in the last piece.
func withSources(was, now, after modeltest.Outcome) modeltest.Outcome {
	if !slices.ContainsFunc(slices.Collect(maps.Values(was.To)), func(a modeltest.Arrival) bool { return a.Masquerade }) {
		return now
	}
	now.To = maps.Clone(now.To)
	for to, how := range now.To {
		how.Masquerade = how.Masquerade && after.To[to].Masquerade
		now.To[to] = how
	}
	return now
}

func compileAll(o compile.Options, s *model.Snapshot, before *[len(model.Families)]*compile.Ruleset) [len(model.Families)]*compile.Ruleset {
	var all [len(model.Families)]*compile.Ruleset
	for _, f := range model.Families {
		var slots *compile.Ruleset
		if before != nil {
			slots = before[f]
		}
		all[f] = o.Compile(slots, s.Family(f))
	}
	return all
}

// counting are options with some of counters, fast path and timeout policies, by a number.
func counting(n int) compile.Options {
	o := compile.Options{Counters: n%5 > 2, FastPath: n%10 > 2}
	if n%4 > 0 {
		o.Timeouts = nft.RetryTimeouts(nil)
	}
	return o
}
