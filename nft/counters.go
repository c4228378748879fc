package nft

import (
	"iter"
	"slices"

	"github.com/vmapd/vmapd/model"
)

// Options are what a ruleset has besides what decides where a packet goes.
type Options struct {
	// Counters counts new connections to each frontend, in the sets ServiceCounters and
	// NodePortCounters. Each first packet that is looked up to be sent on, refused or dropped
	// counts: so does each repetition of one that got no answer, but none that the source
	// ranges keep out.
	//
	// Each element costs the kernel 16 bytes for each CPU that the machine may have, besides
	// its key and comment.
	Counters bool
}

// counterSets are there only with Options.Counters. A counter has its set and an element of
// its own: an element of the verdict map is replaced whenever the number of endpoints
// changes, and would begin at 0 again. Whose it is stands in its comment, so that a frontend
// which goes over to another Service does begin at 0.
//
// A lookup updates what an element counts since Linux 5.7 (nft_lookup_eval).
func counterSets() []Set {
	return []Set{
		{Name: NodePortCounters, Key: []Type{Proto, Service}, Counter: true, Comment: "new connections to node ports"},
		{Name: ServiceCounters, Key: []Type{Addr, Proto, Service}, Counter: true, Comment: "new connections to service addresses"},
	}
}

// isCounters reports whether a set's elements count packets.
func isCounters(set string) bool { return set == ServiceCounters || set == NodePortCounters }

// CounterOf returns where connections to a frontend are counted: the set, and the element's
// key.
func CounterOf(fe model.Frontend) (set, key string) {
	m := mapsFor(fe.Kind)
	return m.counters, m.key(fe.VIP)
}

// counterElements yields what counts connections to one service port.
func (o Options) counterElements(sp *model.ServicePort) iter.Seq2[string, Element] {
	return func(yield func(string, Element) bool) {
		if !o.Counters {
			return
		}
		for _, fe := range sp.Frontends {
			set, key := CounterOf(fe)
			if !yield(set, Element{Key: key, Comment: elementComment(sp.Name)}) {
				return
			}
		}
	}
}

// diffOptions finds what Diff would not, because the service port is the same.
func (b *Batch) diffOptions(have, want *Ruleset, come elements) {
	if have.Options == want.Options {
		return
	}
	b.AddSets = append(b.AddSets, without(want.Sets, have.Sets)...)
	for _, s := range without(have.Sets, want.Sets) {
		b.DeleteSets = append(b.DeleteSets, s.Name)
	}
	for sp := range want.snapshot.ServicePorts() {
		if old, _ := have.snapshot.ServicePort(sp.Name); old == sp {
			come.collect(want.Options.counterElements(sp), sp)
		}
	}
}

// without returns the sets of a list whose name is not in another.
func without(list, other []Set) []Set {
	return slices.DeleteFunc(slices.Clone(list), func(s Set) bool {
		return slices.ContainsFunc(other, func(o Set) bool { return o.Name == s.Name })
	})
}
