package iptables

import (
	"bytes"
	"reflect"
	"slices"

	"github.com/vmapd/vmapd/model"
)

// Diff returns the batch from one ruleset to another that was compiled after it. Its cost
// depends on the size of the difference, unless the options or the detection of pods differ.
// have is nil for a node without our chains; [Ruleset.Repair] is for unknown chains.
func Diff(have, want *Ruleset) *Batch {
	b := &Batch{}
	switch {
	case have == nil:
		for c := range want.chains() {
			b.set(c)
		}
	case have == want:
	default:
		b.diff(have, want)
	}
	b.sort()
	return b
}

func (b *Batch) diff(have, want *Ruleset) {
	b.compare(have.sharedChains(), want.sharedChains())
	for c := range want.forest.Changes(placeKeys, have.forest) {
		if c.InOld {
			b.tables[treeKinds[c.Key.tree].table].growth -= c.Old.rules()
		}
		if c.InNew {
			b.set(c.Key.chain(want.Family, c.New))
		} else {
			b.delete(c.Key.chain(have.Family, c.Old))
		}
	}
	for c := range want.snapshot.ServicePortChanges(have.snapshot) {
		b.compare(have.portChains(c.Old), want.portChains(c.New))
	}
	if reflect.DeepEqual(have.snapshot.Pods, want.snapshot.Pods) && have.options == want.options {
		return
	}
	for sp := range want.snapshot.ServicePorts() {
		if old, _ := have.snapshot.ServicePort(sp.Name); old == sp {
			b.compare(have.portChains(sp), want.portChains(sp))
		}
	}
}

func (r *Ruleset) portChains(sp *model.ServicePort) []chain {
	if sp == nil || r.lacks(sp) {
		return nil
	}
	return r.port(sp).chains()
}

// compare writes the chains that differ, and deletes those that are only in have.
func (b *Batch) compare(have, want []chain) {
	find := func(list []chain, c chain) int {
		return slices.IndexFunc(list, func(o chain) bool { return o.table == c.table && o.name == c.name })
	}
	for _, c := range want {
		i := find(have, c)
		if i >= 0 && bytes.Equal(have[i].text, c.text) {
			continue
		}
		b.set(c)
		if i >= 0 {
			b.tables[c.table].growth -= have[i].rules()
		}
	}
	for _, c := range have {
		if find(want, c) < 0 {
			b.delete(c)
			b.tables[c.table].growth -= c.rules()
		}
	}
}
