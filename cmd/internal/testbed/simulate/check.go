package simulate

import (
	"slices"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/batch"
	"github.com/vmapd/vmapd/nft/compile"
)

// check checks the tables that a batch changed. The caller holds the mutex.
func (w *world) check() {
	if w.tampered || w.refused.Load() || w.failure != nil {
		w.is, w.checked = [len(model.Families)]*model.Snapshot{}, [len(model.Families)]uint32{}
		return
	}
	for _, f := range model.Families {
		generation := w.kernel.TableGeneration(protocolOf[f], nft.TableName)
		if generation == w.checked[f] {
			continue
		}
		table, ok := w.read(f)
		if !ok {
			continue
		}
		w.checked[f] = generation
		if w.is[f] = w.isOf(f, table); w.is[f] == nil {
			w.packets(f, table, connections)
		}
	}
}

// mustBe checks that the tables of families that did not fail are those of a snapshot that was applied, except for
// service ports that the kernel refused. The caller holds the mutex.
func (w *world) mustBe(s *model.Snapshot, err error) {
	if w.tampered {
		return
	}
	failed, refused := model.Failures(err)
	for _, f := range model.Families {
		if failed[f] || w.is[f] == s {
			continue
		}
		table, ok := w.read(f)
		if !ok {
			return
		}
		if b := difference(table, s.Family(f), refused[f]); b != nil {
			w.fail("the %v table is not that of the snapshot that was applied with the error %v; it needs\n%s", f, err, b)
			return
		}
		if len(refused[f]) == 0 {
			w.is[f] = s
		}
	}
}

// reading is a table as it was read.
type reading struct {
	generation uint32 // of the table; 0: of none
	table      *nft.Table
}

// read returns the table of a family; nil: there is none. Rules of several snapshots may be in it.
func (w *world) read(f model.Family) (table *nft.Table, ok bool) {
	generation := w.kernel.TableGeneration(protocolOf[f], nft.TableName)
	if last := w.readings[f]; generation > 0 && last.generation == generation {
		return last.table, true
	}
	w.looking.Store(true)
	defer w.looking.Store(false)
	table, _, err := w.eye.Table(f, model.NewBuilder(w.node.Config).Snapshot())
	if err != nil {
		w.fail("%v table can't be read: %w", f, err)
		return nil, false
	}
	if table == nil {
		return nil, true
	}
	for _, s := range append(slices.Clip(w.between), model.NewBuilder(w.node.Config).Snapshot()) {
		if s != nil {
			recognize(table, retrying.Compile(nil, s.Family(f)).Table().Chains)
		}
	}
	w.readings[f] = reading{generation, table}
	return table, true
}

// recognize puts the rules of chains into a table that was read, in which they are hashes.
func recognize(table *nft.Table, chains []nft.Chain) {
	known := map[string]map[uint64]nft.Rule{}
	for _, c := range chains {
		known[c.Name] = map[uint64]nft.Rule{}
		for _, r := range c.Rules {
			known[c.Name][r.Hash(table.Family)] = r
		}
	}
	for _, c := range table.Chains {
		for i, r := range c.Rules {
			if rule, ok := known[c.Name][r.Hash(table.Family)]; ok {
				c.Rules[i] = rule
			}
		}
	}
}

// isOf returns the snapshot of which a table is, among those that are possible; nil: of none, unless it
// is that of no table.
func (w *world) isOf(f model.Family, table *nft.Table) *model.Snapshot {
	for _, s := range slices.Backward(w.between) {
		if s != nil && difference(table, s.Family(f), nil) == nil {
			return s
		}
	}
	return nil
}

// retrying are the options with which a daemon compiles.
var retrying = compile.Options{Timeouts: nft.RetryTimeouts(nil)}

// difference returns the batch that would make a table that of a snapshot, except for some service ports; nil: it is.
// Objects that nothing uses are no difference.
func difference(table *nft.Table, s *model.FamilySnapshot, but map[model.ServicePortName]bool) *batch.Batch {
	without := map[model.ServicePortName]*model.ServicePort{}
	for p := range but {
		without[p] = nil
	}
	s = s.With(without)
	b := batch.DiffTable(copied(table), retrying.Adopt(table, nil, s))
	leaveOut(b, but)
	if b.Len() == len(b.DeleteChains)+len(b.DeleteSets)+len(b.DeleteFlowtables) {
		return nil
	}
	return b
}

// copied returns a table with the same elements, for batch.DiffTable.
func copied(table *nft.Table) *nft.Table {
	if table == nil {
		return nil
	}
	c := *table
	c.Elements, c.Slots = map[string]nft.Elements{}, nil
	for set := range table.Elements {
		for key := range table.Keys(set) {
			e, _ := table.Get(set, key)
			c.Add(set, e)
		}
	}
	return &c
}

// leaveOut takes out of a batch what may be there of former versions of some service ports. An element to be deleted
// names its service port in its comment at most, and rules may be there for their sake. Endpoints that would be removed
// do not matter: each batch that removes them has them again.
func leaveOut(b *batch.Batch, ports map[model.ServicePortName]bool) {
	if len(ports) == 0 {
		return
	}
	names := map[string]bool{"": true}
	for p := range ports {
		names[p.String()] = true
	}
	for i := range b.Delete {
		l := &b.Delete[i]
		l.List = slices.DeleteFunc(l.List, func(e nft.Element) bool { return names[e.Comment] })
	}
	b.Add = slices.DeleteFunc(b.Add, func(l batch.Elements) bool { return l.Set == nft.GoneEndpoints })
	b.SetChains = slices.DeleteFunc(b.SetChains, func(c nft.Chain) bool { return !b.NewChain(c.Name) })
}
