package compile

import (
	"iter"
	"net/netip"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
)

// Ruleset is the desired content of one family's table. It never changes. Elements are not stored, but made from the
// snapshot when they are needed.
type Ruleset struct {
	Family model.Family
	// Sets and Chains are those that all service ports share, sorted by name.
	Sets    []nft.Set
	Chains  []nft.Chain
	Options Options // with which it was compiled

	snapshot *model.FamilySnapshot
	orders   orders
	needed   neededChains
}

// Compile translates a snapshot. old is the Ruleset compiled from an earlier snapshot with the same options, or nil.
// An endpoint that stays keeps its slot, so that a change costs a handful of elements however many endpoints there are.
// After an earlier Ruleset, the cost depends on the difference between the snapshots, not on their size.
func (o Options) Compile(old *Ruleset, s *model.FamilySnapshot) *Ruleset {
	if old == nil {
		return o.Adopt(nil, nil, s)
	}
	r := &Ruleset{Family: s.Family, snapshot: s, Options: o, Sets: old.Sets, needed: old.needed}
	edit := old.orders.Edit(model.ServicePortKeys)
	grown := false
	for c := range s.ServicePortChanges(old.snapshot) {
		r.needed.usage.count(c.Old, -1)
		r.needed.usage.count(c.New, 1)
		if c.New == nil {
			edit.Delete(&c.Old.Name)
			continue
		}
		assignSlots(edit, c.New, func(l model.TrafficPolicy) []netip.AddrPort {
			if c.Old == nil {
				return nil
			}
			return old.slots(c.Old, l)
		})
		grown = r.needed.add(c.New) || grown
	}
	r.orders = edit.Done()
	grown = grown || r.needed.usage.used() != old.needed.usage.used()
	if r.Chains = old.Chains; grown || s.Settings != old.snapshot.Settings {
		r.Chains = o.layoutChains(s.Settings, r.needed)
	}
	return r
}

// Adopt is Compile for a table as it was read from the kernel, or nil. left is what this process left there, and so
// perhaps chains that nothing needs now; nil: nothing.
func (o Options) Adopt(table *nft.Table, left *Ruleset, s *model.FamilySnapshot) *Ruleset {
	r := &Ruleset{Family: s.Family, snapshot: s, Options: o, Sets: o.LayoutSets()}
	if r.needed.choosing = map[choice]bool{}; left != nil {
		r.needed.choosing = left.needed.choosing
	}
	edit := r.orders.Edit(model.ServicePortKeys)
	for sp := range s.ServicePorts() {
		assignSlots(edit, sp, func(l model.TrafficPolicy) []netip.AddrPort { return slotsIn(table, sp, l) })
		r.needed.add(sp)
		r.needed.usage.count(sp, 1)
	}
	r.orders = edit.Done()
	r.Chains = o.layoutChains(s.Settings, r.needed)
	return r
}

// AllSets returns the declarations of all sets and maps.
func (r *Ruleset) AllSets() (all []nft.Set) {
	for unit := range r.Units() {
		all = append(all, unit.Sets...)
	}
	return all
}

// Table returns the table that the ruleset wants, with sets and chains sorted by name.
func (r *Ruleset) Table() *nft.Table {
	t := &nft.Table{
		Family: r.Family, Timeouts: r.Options.Timeouts, Flowtables: r.Options.Flowtables(),
		Elements: map[string]nft.Elements{},
	}
	for unit := range r.Units() {
		t.Sets, t.Chains = append(t.Sets, unit.Sets...), append(t.Chains, unit.Chains...)
		unit.Elements(t.Add)
	}
	slices.SortFunc(t.Sets, func(a, b nft.Set) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(t.Chains, func(a, b nft.Chain) int { return strings.Compare(a.Name, b.Name) })
	return t
}

// OfPort returns the part of the table that is about one service port: its elements, and the chains to which they lead.
// The cost does not depend on other service ports.
func (r *Ruleset) OfPort(name model.ServicePortName) *nft.Table {
	t := &nft.Table{Family: r.Family, Elements: map[string]nft.Elements{}}
	sp, _ := r.snapshot.ServicePort(name)
	unit, leads := r.unit(version{ServicePort: sp}), map[string]bool{}
	unit.Elements(func(set string, e nft.Element) {
		t.Add(set, e)
		leads[e.Verdict.Chain] = true
	})
	t.Sets, t.Chains = slices.Concat(r.Sets, unit.Sets), slices.Concat(unit.Chains, r.Chains)
	for _, c := range t.Chains { // external-affinity-… and local-… lead to others; no chain behind these does
		for _, rule := range c.Rules {
			if v, ok := rule[len(rule)-1].(nft.Verdict); ok && leads[c.Name] {
				leads[v.Chain] = true
			}
		}
	}
	t.Sets = slices.DeleteFunc(t.Sets, func(s nft.Set) bool { return t.Elements[s.Name] == nil })
	t.Chains = slices.DeleteFunc(t.Chains, func(c nft.Chain) bool { return !leads[c.Name] })
	return t
}

// Options turn on parts of a ruleset that do not affect where packets go.
type Options struct {
	// Counters counts new connections to each frontend, in the sets ServiceCounters and NodePortCounters, by first
	// packets: forwarded, rejected or dropped, but for those that the source ranges drop. A packet that is repeated counts
	// again. Each element takes 16 bytes in the kernel for each possible CPU.
	Counters bool

	// Timeouts are the timeout policies of connections that are retried, see model.ServicePort.RetryAfter; nil: the kernel
	// has none, and connections wait for their endpoint.
	Timeouts []nft.Timeout

	// FastPath lets the packets of Service connections take the fast path, except the first ones of
	// each: see [nft.FastPath].
	FastPath bool
}

// LayoutSets returns the sets and maps that all service ports share, sorted by name.
func (o Options) LayoutSets() []nft.Set {
	return slices.DeleteFunc(nft.SharedSets(), func(s nft.Set) bool {
		return !o.Counters && s.Counter || !o.FastPath && (s.Name == nft.FastPathIPs || s.Name == nft.FastPathNodePorts)
	})
}

// Change is a unit in two rulesets. What stays in it may be left out of both.
type Change struct{ Old, New Unit }

// Changes yields what differs between an earlier ruleset and this one. The cost depends on the difference, not on their
// size, unless settings differ. Both have the same options.
func (r *Ruleset) Changes(have *Ruleset) iter.Seq[Change] {
	return func(yield func(Change) bool) {
		if !yield(r.sharedChange(have)) {
			return
		}
		port := func(old, now *model.ServicePort) bool {
			c := Change{have.unit(have.version(old, r, now)), r.unit(r.version(now, have, old))}
			c.New.Clients = stale(c.New.Clients, old, now)
			return yield(c)
		}
		for c := range r.snapshot.ServicePortChanges(have.snapshot) {
			if !port(c.Old, c.New) {
				return
			}
		}
		if r.snapshot.Settings == have.snapshot.Settings {
			return
		}
		for sp := range r.snapshot.ServicePorts() { // they may have other elements
			if old, _ := have.snapshot.ServicePort(sp.Name); old == sp && !port(sp, sp) {
				return
			}
		}
	}
}

// sharedChange is the change in what all service ports share.
func (r *Ruleset) sharedChange(have *Ruleset) Change {
	var c Change
	if len(have.Chains) != len(r.Chains) || &have.Chains[0] != &r.Chains[0] {
		c.Old.Chains, c.New.Chains = have.Chains, r.Chains
	}
	since := func(r, other *Ruleset) func(AddFunc) {
		return func(add AddFunc) {
			r.sharedFirst(other.snapshot, add)
			r.sharedLast(other.snapshot, nil, add)
		}
	}
	c.Old.Elements, c.New.Elements = since(have, r), since(r, have)
	return c
}

// Former returns a service port as the ruleset has it, if it has the same frontends' addresses; nil: none. The ruleset
// may be nil.
func (r *Ruleset) Former(sp *model.ServicePort) *model.ServicePort {
	if r == nil {
		return nil
	}
	old, ok := r.snapshot.ServicePort(sp.Name)
	same := func(a, b model.Frontend) bool { return a.Kind == b.Kind && a.VIP == b.VIP }
	if !ok || !slices.EqualFunc(old.Frontends, sp.Frontends, same) {
		return nil
	}
	return old
}

// Counters yields the service ports, and the keys of their counters.
func (r *Ruleset) Counters() iter.Seq2[*model.ServicePort, []string] {
	return func(yield func(*model.ServicePort, []string) bool) {
		for sp := range r.snapshot.ServicePorts() {
			var keys []string
			for _, fe := range sp.Frontends {
				keys = append(keys, nft.FrontendsOf(fe.Kind).Key(fe.VIP))
			}
			if !yield(sp, keys) {
				return
			}
		}
	}
}
