package iptables

import (
	"bytes"
	"net/netip"
	"reflect"
	"slices"

	"github.com/vmapd/vmapd/model"
)

// A Ruleset is the desired content of one family's chains. It is immutable. It holds the trees; the chains of service
// ports are made from the snapshot on demand.
type Ruleset struct {
	*model.FamilySnapshot

	options Options
	forest  forest
}

// Compile translates a snapshot. After a Ruleset with the same options, the cost depends on the changes between the
// snapshots, and unchanged parts are shared. before may be nil.
func Compile(before *Ruleset, s *model.FamilySnapshot, o Options) *Ruleset {
	r := &Ruleset{FamilySnapshot: s, options: o}
	if before == nil || before.options != o {
		empty := &model.FamilySnapshot{Family: s.Family, Settings: &model.Settings{}}
		before = &Ruleset{FamilySnapshot: empty, options: o, forest: saplings()}
	}
	var removed, added []placed
	if s.Settings != before.Settings {
		removed, added = nodeEntries(before.FamilySnapshot), nodeEntries(s)
	}
	note := func(inOld bool, p placed) {
		if inOld {
			removed = append(removed, p)
		} else {
			added = append(added, p)
		}
	}
	for c := range s.ClusterIPs.Changes(model.AddrKeys, before.ClusterIPs) {
		note(c.InOld, clusterIPEntry(c.Key))
	}
	for c := range s.Hairpins.Changes(model.AddrKeys, before.Hairpins) {
		note(c.InOld, r.hairpinEntry(c.Key))
	}
	for c := range s.ServicePortChanges(before.FamilySnapshot) {
		if was, is := before.entriesOf(c.Old), r.entriesOf(c.New); !slices.Equal(was, is) {
			removed, added = append(removed, was...), append(added, is...)
		}
	}
	r.forest = replant(before.forest, removed, added)
	return r
}

func (r *Ruleset) entriesOf(sp *model.ServicePort) []placed {
	if sp == nil || r.lacks(sp) {
		return nil
	}
	return r.port(sp).entries()
}

// placed is an entry and the end of a tree where it belongs.
type placed struct {
	place
	entry
}

// lacks reports whether the kernel lacks what a service port needs.
func (r *Ruleset) lacks(sp *model.ServicePort) bool {
	return r.options.NoSCTP && sp.Name.Protocol == model.SCTP
}

// Lacking returns the service ports that have no rules, because the kernel lacks what they need.
func (r *Ruleset) Lacking() map[model.ServicePortName]bool {
	if !r.options.NoSCTP {
		return nil
	}
	ports := map[model.ServicePortName]bool{}
	for sp := range r.ServicePorts() {
		if r.lacks(sp) {
			ports[sp.Name] = true
		}
	}
	return ports
}

// nodeEntries lead to node ports, in both tables. In the filter table packets come back from
// there, because the address may be a cluster IP as well.
func nodeEntries(s *model.FamilySnapshot) []placed {
	var list []placed
	for _, a := range s.NodePortAddrs {
		key, match := entryKey{addr: a, class: aNodeAddr}, "-d "+host(a)
		list = append(list,
			placed{atAddr(natAddrs, a), entry{key, match + " -g " + nodePortsChain}},
			placed{atAddr(filterAddrs, a), entry{key, match + " -j " + nodePortsChain}})
	}
	return list
}

// clusterIPEntry refuses connections to a cluster IP that have no DNAT. If the node has the address, too, a process
// of it may listen there, as with NodeLocal DNSCache; the kernel refuses ports that no process has.
func clusterIPEntry(a netip.Addr) placed {
	rule := Join("-d "+host(a), NotToNode, gotoReject)
	return placed{atAddr(filterAddrs, a), entry{entryKey{addr: a, class: aClusterIP}, rule}}
}

// hairpinEntry masquerades connections of an endpoint on this node to itself.
func (r *Ruleset) hairpinEntry(a netip.Addr) placed {
	rule := "-s " + host(a) + " -d " + host(a) + " " + Masquerade(r.options.RandomFully)
	return placed{atAddr(hairpins, a), entry{entryKey{addr: a}, rule}}
}

// each calls do with every chain.
func (r *Ruleset) each(do func(chain)) {
	for _, c := range r.sharedChains() {
		do(c)
	}
	for p, n := range r.forest.All() {
		do(p.chain(r.Family, n))
	}
	for sp := range r.ServicePorts() {
		for _, c := range r.portChains(sp) {
			do(c)
		}
	}
}

// Diff returns the batch from one ruleset to another that was compiled after it. Its cost
// depends on the size of the difference, unless the options or the detection of pods differ.
// have is nil for a node without our chains; [Ruleset.Repair] is for unknown chains.
func Diff(have, want *Ruleset) *Batch {
	b := &Batch{}
	switch {
	case have == nil:
		want.each(b.set)
	case have != want:
		b.diff(have, want)
	}
	b.sort()
	return b
}

func (b *Batch) diff(have, want *Ruleset) {
	b.compare(have.sharedChains(), want.sharedChains())
	for c := range want.forest.Changes(placeKeys, have.forest) {
		if c.InOld && c.InNew && c.New.children == c.Old.children && slices.Equal(c.New.entries, c.Old.entries) {
			continue
		}
		if c.InOld {
			b.tables[treeKinds[c.Key.tree].table].growth -= c.Old.rules()
		}
		if c.InNew {
			b.set(c.Key.chain(want.Family, c.New))
		} else {
			b.delete(c.Key.chain(have.Family, c.Old))
		}
	}
	for c := range want.ServicePortChanges(have.FamilySnapshot) {
		b.compare(have.portChains(c.Old), want.portChains(c.New))
	}
	if reflect.DeepEqual(have.Pods, want.Pods) && have.options == want.options {
		return
	}
	for sp := range want.ServicePorts() {
		if old, _ := have.ServicePort(sp.Name); old == sp {
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
