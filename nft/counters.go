package nft

import "github.com/vmapd/vmapd/model"

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

// CounterOf returns where connections to a frontend are counted: the set, and the element's
// key.
func CounterOf(fe model.Frontend) (set, key string) {
	s := scopeOf(fe.Kind)
	return s.set(roleCounters), s.key(fe.VIP)
}

// counterElements adds what counts connections to one service port.
func (o Options) counterElements(sp *model.ServicePort, add func(set string, e Element)) {
	if !o.Counters {
		return
	}
	for _, fe := range sp.Frontends {
		set, key := CounterOf(fe)
		add(set, Element{Key: key, Comment: elementComment(sp.Name)})
	}
}

// diffOptions finds what Diff would not, because the service port is the same.
func (b *Batch) diffOptions(have, want *Ruleset, come elements) {
	if have.Options == want.Options {
		return
	}
	b.diffSets(have.Sets, want.Sets)
	for sp := range want.snapshot.ServicePorts() {
		if old, _ := have.snapshot.ServicePort(sp.Name); old == sp {
			want.Options.counterElements(sp, come.of(sp))
		}
	}
}
