package simulate

import (
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
)

// check checks the tables after a batch. The caller holds the mutex.
func (w *world) check() {
	if w.tampered || w.refused.Load() || w.failure != nil {
		return
	}
	for _, f := range model.Families {
		table, ok := w.read(f)
		if !ok || w.isOf(f, table) != nil {
			continue
		}
		w.packets(f, table, connections)
	}
}

// read returns the table of a family; nil: there is none. Rules of several snapshots may be in it.
func (w *world) read(f model.Family) (table *nft.Table, ok bool) {
	w.looking.Store(true)
	defer w.looking.Store(false)
	for i := len(w.between) - 1; i >= 0; i-- {
		s := w.between[i]
		if s == nil {
			s = model.NewBuilder(w.node.Config).Snapshot()
		}
		read, _, err := w.eye.Table(f, s)
		if err != nil {
			w.fail("%v table can't be read: %w", f, err)
			return nil, false
		}
		if table == nil {
			table = read
		}
		if table == nil || recognize(table, read) {
			break
		}
	}
	return table, true
}

// recognize takes chains from another reading whose rules the first one did not know. It reports
// whether all are known.
func recognize(table, other *nft.Table) bool {
	all := true
	for i, c := range table.Chains {
		if foreignRule(c) == "" {
			continue
		}
		for _, o := range other.Chains {
			if o.Name == c.Name && foreignRule(o) == "" {
				table.Chains[i], c = o, o
			}
		}
		all = all && foreignRule(c) == ""
	}
	return all
}

// foreignRule returns what is not known in a chain, or "".
func foreignRule(c nft.Chain) string {
	for _, r := range c.Rules {
		for _, s := range r {
			if what, ok := s.(nft.Foreign); ok {
				return what.What
			}
		}
	}
	return ""
}

// isOf returns the snapshot of which a table is, among those that are possible; nil: of none, unless it
// is that of no table.
func (w *world) isOf(f model.Family, table *nft.Table) *model.Snapshot {
	for i := len(w.between) - 1; i >= 0; i-- {
		if s := w.between[i]; s != nil && difference(table, s.Family(f)) == nil {
			return s
		}
	}
	return nil
}

// difference returns the batch that would make a table that of a snapshot; nil: it is. Objects that
// nothing uses are no difference.
func difference(table *nft.Table, s *model.FamilySnapshot) *nft.Batch {
	var before nft.Slots
	if table != nil {
		before = table
	}
	b := nft.DiffTable(table, nft.Compile(before, s))
	if b.Len() == len(b.DeleteChains)+len(b.DeleteSets)+len(b.DeleteFlowtables) {
		return nil
	}
	return b
}

// mustBeFresh checks that the tables are those of a fresh compilation.
func (w *world) mustBeFresh() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failure != nil {
		return
	}
	fresh := model.NewBuilder(w.node.Config)
	for _, o := range w.server.all("") {
		o.Set(fresh)
	}
	fresh.SetHostAddresses(w.server.host)
	s := fresh.Snapshot()
	w.between = []*model.Snapshot{s}
	for _, f := range model.Families {
		table, ok := w.read(f)
		if !ok {
			return
		}
		if b := difference(table, s.Family(f)); b != nil {
			w.fail("the %v table is not that of a fresh compilation, %v after the end of all faults; it needs\n%s", f, settleTime, b)
			return
		}
		w.packets(f, table, 5*connections)
		w.mustHavePurged(f, s.Family(f))
	}
}
